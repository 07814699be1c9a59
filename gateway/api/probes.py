"""Health of the gateway itself, and the deep check that runs one token through everything."""

from __future__ import annotations

import asyncio
import time

from aiohttp import web

from gateway.api.context import DOORS
from gateway.api.doors import Doors
from gateway.api.errors import dumps
from gateway.api.middleware import DRAINING
from gateway.flight.flight import Flight, Silent
from gateway.flight.spec import GenerateSpec, IdsPrompt, Sampling, Stops
from services.common.errors import HeadraceError

_DEEP_TIMEOUT_S = 20.0


def _answer(code: int, **values: object) -> web.Response:
    headers = {"retry-after": "1"} if code == 503 else {}
    return web.Response(status=code, body=dumps(values), content_type="application/json", headers=headers)


async def health(request: web.Request) -> web.StreamResponse:
    """Liveness: the process answers, and is not on its way out. Never asks anybody else."""
    return _answer(503, status="draining") if request.app[DRAINING].is_set() else _answer(200, status="alive")


async def ready(request: web.Request) -> web.StreamResponse:
    """Readiness: not draining, and tokenizer, detokenizer and a worker are there."""
    missing = not_ready(request.app[DOORS], draining=request.app[DRAINING].is_set())
    return _answer(503, status="not ready", missing=missing) if missing else _answer(200, status="ready")


def not_ready(doors: Doors, *, draining: bool) -> list[str]:
    """What keeps the gateway from taking requests."""
    missing = ["draining"] if draining else []
    if not doors.registry.ready():
        missing.append("worker")
    if not doors.text.ready:
        missing.append("detokenizer")
    if not doors.tokenizer.reached:
        missing.append("tokenizer")
    return missing


class DeepProbe:
    """One generated token through all services. One probe at a time: others share its answer. Nothing is left behind."""

    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        self._running: asyncio.Task[str] | None = None

    async def check(self) -> str:
        """An empty string if a token came, else what went wrong."""
        if self._running is None:
            self._running = asyncio.create_task(self._once())
            self._running.add_done_callback(self._forget)
        return await asyncio.shield(self._running)

    def _forget(self, task: asyncio.Task[str]) -> None:
        self._running = None

    async def _once(self) -> str:
        try:
            async with asyncio.timeout(_DEEP_TIMEOUT_S):
                model = self._doors.models.resolve("")
                token = (await self._doors.tokenizer.info(model, timeout_s=_DEEP_TIMEOUT_S)).bos_token_id or 0
                spec = GenerateSpec(
                    request_id=f"health-{time.monotonic_ns()}",
                    model=model,
                    prompt=IdsPrompt((token,)),
                    sampling=Sampling(temperature=0.0),
                    stops=Stops(max_new_tokens=1),
                    timeout_s=_DEEP_TIMEOUT_S,
                )
                await self._doors.pipeline.run(Flight(spec, Silent()))
        except TimeoutError:
            return f"no token within {_DEEP_TIMEOUT_S:g} s"
        except HeadraceError as error:
            return error.message
        return ""


DEEP: web.AppKey[DeepProbe] = web.AppKey("deep_probe", DeepProbe)


async def health_generate(request: web.Request) -> web.StreamResponse:
    """The deep check: for alerts, never for restarts."""
    wrong = await request.app[DEEP].check()
    return _answer(503, status="failed", message=wrong) if wrong else _answer(200, status="generated")
