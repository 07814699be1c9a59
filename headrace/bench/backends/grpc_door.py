"""Our public gRPC door."""

from __future__ import annotations

import time

from headrace.bench.record import BenchRequest, Outcome
from headrace.bench.settings import Sending
from headrace.client.grpc_door import AsyncGrpcDoor, DoorError, Prompt, SamplingSettings


class GrpcBackend:
    """Gateway.Generate with streaming."""

    def __init__(self, target: str, sending: Sending) -> None:
        self._door = AsyncGrpcDoor(target, api_key=sending.api_key)
        self._sending = sending

    async def send(self, request: BenchRequest, outcome: Outcome) -> None:
        zero = self._sending.clock_zero
        sampling = SamplingSettings(request.output_len, self._sending.temperature, self._sending.ignore_eos)
        prompt = Prompt(text=request.text, input_ids=request.prompt_ids)
        pieces: list[str] = []
        outcome.sent = time.perf_counter() - zero
        try:
            async for part in self._door.generate(prompt, sampling, model=self._sending.model, timeout_s=self._sending.timeout_s):
                if part.finish is None or part.text:
                    outcome.events.append(time.perf_counter() - zero)
                if self._sending.keep_text:
                    pieces.append(part.text)
                if part.finish is not None:
                    outcome.prompt_tokens, outcome.output_tokens = part.finish.prompt_tokens, part.finish.completion_tokens
                    outcome.cached_tokens, outcome.finish = part.finish.cached_tokens, part.finish.reason
        except DoorError as error:
            outcome.error, outcome.detail = error.kind, str(error)
        outcome.ended = time.perf_counter() - zero
        outcome.text = "".join(pieces)
        if outcome.ok and outcome.finish in ("", "abort"):
            outcome.error = "aborted by the server" if outcome.finish else "broken answer"

    async def close(self) -> None:
        await self._door.close()
