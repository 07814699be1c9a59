"""Information and control: server_info, model_info, loads, flush_cache, workers."""

from __future__ import annotations

import os
import time
from typing import Any

from aiohttp import web

from gateway.api.body import read_json
from gateway.api.context import caller
from gateway.api.errors import dumps
from gateway.api.schema.reader import Fields
from gateway.workers.describe import describe
from gateway.workers.worker import Worker
from services.common.errors import Conflict, InvalidRequest
from services.common.version import VERSION

REPORT = web.AppKey("report", dict)


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(status=status, body=dumps(value), content_type="application/json")


async def server_info(request: web.Request) -> web.StreamResponse:
    """Every effective setting and computed limit, of the gateway and of each worker."""
    doors = caller(request).doors
    fields = Fields({"decisions": _number(request, "decisions")})
    workers = await doors.admin.server_info(fields.integer("decisions", 0, 10_000) or 0)
    return _json({"version": VERSION, "gateway": request.app[REPORT], "workers": workers})


def _number(request: web.Request, name: str) -> int | None:
    text = request.query.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 12:
        raise InvalidRequest(f"{name} must be a whole number, not {text[:60]!r}", field=name)
    return int(text)


async def model_info(request: web.Request) -> web.StreamResponse:
    """What each worker serves; the first one's values stand at the top, as native clients expect."""
    doors = caller(request).doors
    workers = await doors.admin.model_info()
    first = next((worker for worker in workers if "error" not in worker), {})
    return _json({**{name: value for name, value in first.items() if name != "worker"}, "is_generation": True, "workers": workers})


async def loads(request: web.Request) -> web.StreamResponse:
    """Running, waiting, tokens and limits of each worker and of the gateway; as JSON or as Prometheus text."""
    doors = caller(request).doors
    rows = await doors.admin.loads()
    if request.query.get("format") == "prometheus":
        return web.Response(text=_prometheus(rows), content_type="text/plain")
    good = [row for row in rows if "error" not in row]
    total = {name: sum(row.get(name, 0) for row in good) for name in ("running", "waiting", "kv_used_tokens", "kv_total_tokens")}
    return _json({"timestamp": time.time(), "gateway": {"in_flight": doors.pipeline.active}, "total": total, "loads": rows})


def _prometheus(rows: list[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        for name, value in row.items():
            if isinstance(value, int | float):
                lines.append(f'headrace_load_{name}{{worker="{row["worker"]}"}} {value}')
    return "\n".join(lines) + "\n"


async def flush_cache(request: web.Request) -> web.StreamResponse:
    """Empty every worker's prefix cache; 400 while requests run, unless `timeout` seconds let them end."""
    seconds = request.query.get("timeout", "0")
    try:
        timeout_s = min(600.0, max(0.0, float(seconds)))
    except ValueError as error:
        raise InvalidRequest(f"timeout must be a number of seconds, not {seconds[:60]!r}", field="timeout") from error
    return _json({"success": True, "workers": await caller(request).doors.admin.flush(timeout_s)})


def _worker(request: web.Request, worker: Worker) -> dict[str, Any]:
    return describe(caller(request).doors.registry, worker)


async def list_workers(request: web.Request) -> web.StreamResponse:
    """All workers in every state."""
    doors = caller(request).doors
    return _json({"workers": [_worker(request, worker) for worker in doors.registry.workers()], "gateway_process_id": os.getpid()})


def _changeable(request: web.Request) -> None:
    if caller(request).doors.settings.shared_port:
        raise Conflict(
            "several gateways share this port: workers come and go by configuration or discovery, and drain when they are signalled",
            code="shared_port",
        )


async def add_worker(request: web.Request) -> web.StreamResponse:
    """Add a worker by address; it is pending until it is reached."""
    _changeable(request)
    doors = caller(request).doors
    fields = Fields(await read_json(request, 65_536))
    url = fields.string("url", longest=1024)
    if not url:
        raise fields.bad("url", "the worker's address")
    return _json(_worker(request, doors.registry.add(url, source="api")), status=201)


async def get_worker(request: web.Request) -> web.StreamResponse:
    """One worker, by id or address."""
    return _json(_worker(request, caller(request).doors.registry.find(request.match_info["worker"])))


async def delete_worker(request: web.Request) -> web.StreamResponse:
    """Take a worker out at once; what runs there goes on elsewhere."""
    _changeable(request)
    return _json(_worker(request, caller(request).doors.registry.remove(request.match_info["worker"])))


async def drain_worker(request: web.Request) -> web.StreamResponse:
    """No new requests for a worker; running ones go on."""
    _changeable(request)
    return _json(_worker(request, caller(request).doors.registry.drain(request.match_info["worker"])))
