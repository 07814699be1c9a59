"""Tokens per second through one detokenizer Session's code, beside a floor that keeps no state.

    python -m benchmarks.detokenizer [--model-path FOLDER] [--batch 64] [--steps 2000]

Each step is one frame with one token for each of `batch` choices, from bytes to bytes. The floor parses the same
frames, looks the ids up, decodes each alone and serializes columns: what any design with these contracts must do.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable

from protos.detokenizer.v1 import detokenizer_pb2 as pb
from services.common.text.token_bytes import TokenBytes
from services.common.text.tokenizer_files import find_tokenizer, load_token_bytes
from services.detokenizer.convert import FrameBuilder
from services.detokenizer.texts import OpenSpec, SessionTexts, StateBudget

_ROUNDS = 3


def made_up_vocabulary(size: int = 50_000) -> TokenBytes:
    """A byte-level vocabulary of short random words, for a run without a model."""
    rng = random.Random(1)
    words = [bytes(rng.choices(b"abcdefghij klmnopqrst", k=rng.randint(1, 8))) for _ in range(size)]
    return TokenBytes([bytes([byte]) for byte in range(256)] + words)


def frames(tokens: TokenBytes, batch: int, steps: int) -> list[bytes]:
    """Serialized steps of random ids."""
    rng = random.Random(0)
    handles = list(range(batch))
    return [
        pb.ToDetok(
            tokens=pb.Tokens(
                handle=handles,
                first_position=[step] * batch,
                count=[1] * batch,
                token_ids=[rng.randrange(tokens.vocab_size) for _ in handles],
            )
        ).SerializeToString()
        for step in range(steps)
    ]


def session(tokens: TokenBytes, batch: int, stops: tuple[str, ...]) -> Callable[[bytes], None]:
    """What the service does with one frame."""
    texts = SessionTexts(tokens, "", StateBudget(batch))
    for handle in range(batch):
        texts.open(OpenSpec(handle, context_ids=[0], stop_strings=stops, skip_special=True))

    def step(frame: bytes) -> None:
        columns = pb.ToDetok.FromString(frame).tokens
        texts.add_tokens(list(columns.handle), list(columns.first_position), list(columns.count), list(columns.token_ids))
        builder = FrameBuilder()
        texts.take_due(builder)
        for out in builder.frames():
            out.SerializeToString()

    return step


def floor(tokens: TokenBytes) -> Callable[[bytes], None]:
    """The least any detokenizer with these contracts does with one frame."""
    pieces = tokens.visible_pieces

    def step(frame: bytes) -> None:
        columns = pb.ToDetok.FromString(frame).tokens
        handles, positions = list(columns.handle), list(columns.first_position)
        out = pb.FromDetok()
        out.text.handle.extend(handles)
        out.text.piece.extend([pieces[token_id].decode(errors="replace") for token_id in columns.token_ids])
        out.text.through_position.extend(positions)
        out.text.end_byte.extend(positions)
        out.text.holding.extend([False] * len(handles))
        out.SerializeToString()

    return step


def tokens_per_second(make: Callable[[], Callable[[bytes], None]], steps: list[bytes], batch: int) -> float:
    """Best of some rounds, in CPU time."""
    best = float("inf")
    for _ in range(_ROUNDS):
        step = make()
        began = time.process_time()
        for frame in steps:
            step(frame)
        best = min(best, time.process_time() - began)
    return len(steps) * batch / best


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model-path", default="")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=2000)
    given = parser.parse_args()
    tokens = load_token_bytes(find_tokenizer(given.model_path)) if given.model_path else made_up_vocabulary()
    steps = frames(tokens, given.batch, given.steps)
    least = tokens_per_second(lambda: floor(tokens), steps, given.batch)
    for name, stops in (("no stops", ()), ("two stop strings", ("END", "\n\n\n"))):
        speed = tokens_per_second(lambda stops=stops: session(tokens, given.batch, stops), steps, given.batch)  # type: ignore[misc]
        print(f"{name:18} {speed / 1000:6.0f} k tokens/s, {speed / least:.2f} of the floor ({least / 1000:.0f} k)")


if __name__ == "__main__":
    main()
