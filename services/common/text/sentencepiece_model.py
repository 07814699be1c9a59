"""TokenBytes from a sentencepiece .model file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from services.common.text.errors import TokenizerUnavailable
from services.common.text.token_bytes import TokenBytes

_SPACE = "▁"


def load_processor(path: Path) -> Any:
    """A sentencepiece processor. The library is imported here, as most models do without it."""
    import sentencepiece

    try:
        return sentencepiece.SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError) as error:
        raise TokenizerUnavailable(f"cannot read {path}: {error}") from error


def load_sentencepiece_model(path: Path) -> TokenBytes:
    """The byte table of a sentencepiece model. Control and unknown ids are special; their text is their name."""
    processor = load_processor(path)
    pieces: list[bytes] = []
    start_pieces: dict[int, bytes] = {}
    special: set[int] = set()
    for token_id in range(processor.get_piece_size()):
        name = processor.id_to_piece(token_id)
        if processor.is_byte(token_id):
            pieces.append(bytes([int(name[3:5], 16)]))
            continue
        text = name.replace(_SPACE, " ")
        pieces.append(text.encode())
        if processor.is_control(token_id) or processor.is_unknown(token_id):
            special.add(token_id)
        elif (first := processor.decode([token_id])) != text:
            start_pieces[token_id] = first.encode()
    bos, space = processor.bos_id(), processor.piece_to_id(_SPACE)
    return TokenBytes(
        pieces=pieces,
        special_ids=frozenset(special),
        added_ids=frozenset(special),
        start_pieces=start_pieces,
        start_lasts=not processor.is_unknown(space) and processor.decode([space, space]) == "",
        bos_id=bos if bos >= 0 else None,
        kind="sentencepiece",
    )
