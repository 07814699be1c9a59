"""What streamed chat answers and streamed completions spell alike: chunks without a choice."""

from __future__ import annotations

from typing import Any

from gateway.api.answers import quote
from gateway.api.errors import spell


class Chunks:
    """Spells chunks of one answer. `kind` is their `object`."""

    def __init__(self, kind: str, answer_id: str, created: int, model: str, *, usage: bool) -> None:
        self._head = f'data: {{"id":{quote(answer_id)},"object":"{kind}","created":{created},"model":{quote(model)}'
        self._usage = ',"usage":null' if usage else ""

    def checked(self, verdicts: list[dict[str, Any]]) -> bytes:
        """The chunk that tells whether the choices are what their schemas ask for."""
        return f'{self._head},"choices":[],"schema_check":{spell(verdicts)}{self._usage}}}\n\n'.encode()

    def totals(self, usage: dict[str, Any]) -> bytes:
        """The usage chunk."""
        return f'{self._head},"choices":[],"usage":{spell(usage)}}}\n\n'.encode()
