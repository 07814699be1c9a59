"""Streamed native answers: cumulative text by default, or only what is new."""

from __future__ import annotations

from collections.abc import Callable

from gateway.api.answers import quote
from gateway.api.errors import dumps
from gateway.api.meta_info import meta_info
from gateway.api.usage import cached_tokens
from gateway.clients.pieces import PieceTable
from gateway.flight.choice import Choice


class NativeStream:
    """Listener of one prompt's flight. numbered: events carry the index of their answer."""

    def __init__(
        self,
        write: Callable[[bytes], None],
        pieces: PieceTable,
        *,
        incremental: bool,
        first_index: int,
        numbered: bool,
        detailed: bool,
        text_in_logprobs: bool,
    ) -> None:
        self._write = write
        self._pieces = pieces
        self._incremental = incremental
        self._first = first_index
        self._numbered = numbered
        self._detailed = detailed
        self._text_in_logprobs = text_in_logprobs
        self._sent: dict[int, int] = {}

    def text(self, choice: Choice, piece: str) -> None:
        """See Listener."""
        if self._detailed:
            self._detail(choice, piece, whole=False)
            return
        flight = choice.flight
        info = (
            f'{{"id":{quote(flight.spec.request_id)},"finish_reason":null,"prompt_tokens":{len(flight.prompt_ids)},'
            f'"completion_tokens":{len(choice.output_ids)},"cached_tokens":{cached_tokens(flight)},"resumes":{flight.resumes}}}'
        )
        self._send(choice, piece, info)

    def finished(self, choice: Choice) -> None:
        """See Listener."""
        self._detail(choice, "", whole=True)

    def _detail(self, choice: Choice, piece: str, *, whole: bool) -> None:
        info = meta_info(choice, self._pieces, text_in_logprobs=self._text_in_logprobs, whole=whole)
        self._send(choice, piece, dumps(info).decode())

    def _send(self, choice: Choice, piece: str, info: str) -> None:
        text = piece if self._incremental else choice.full_text()
        begin = self._sent.get(choice.index, 0) if self._incremental else 0
        self._sent[choice.index] = len(choice.output_ids)
        ids = ",".join(map(str, choice.output_ids[begin:]))
        number = f'"index":{self._first + choice.index},' if self._numbered else ""
        self._write(f'data: {{{number}"text":{quote(text)},"output_ids":[{ids}],"meta_info":{info}}}\n\n'.encode())
