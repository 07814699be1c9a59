"""Who asks, under which id, and with which defaults."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass

from aiohttp import web

from gateway.api.doors import Doors
from gateway.api.schema.limits import Defaults
from services.common.errors import HeadraceError

_ID = web.AppKey("doors", Doors)
_LONGEST_ID = 128
_CLEAN = re.compile(r"[^A-Za-z0-9_.:\-]")

DOORS: web.AppKey[Doors] = _ID
REQUEST_ID = web.RequestKey("request_id", str)
TENANT = web.RequestKey("tenant", str)
REFUSED = web.RequestKey("refused", HeadraceError)  # why the answer is an error, for the log


@dataclass(frozen=True, slots=True)
class Caller:
    """One HTTP request's surroundings."""

    request_id: str
    tenant: str
    doors: Doors


def request_id_of(request: web.Request) -> str:
    """The id the client sent, if it is fit to be logged and passed on, else a new one."""
    given = request.headers.getall("x-request-id", [])
    if len(given) == 1:
        cleaned = _CLEAN.sub("", given[0])
        if cleaned and cleaned == given[0] and len(cleaned) <= _LONGEST_ID:
            return cleaned
    return uuid.uuid4().hex


def caller(request: web.Request) -> Caller:
    """What the middleware has found out."""
    return Caller(request[REQUEST_ID], request.get(TENANT, ""), request.app[DOORS])


def free_id(doors: Doors, wanted: str, count: int = 1) -> str:
    """`wanted`, or a variation of it where a request of that id is still in the air: a client may send an id twice."""
    if not any(doors.pipeline.is_active(name) for name in (wanted, *(f"{wanted}-{i}" for i in range(count)))):
        return wanted
    return f"{wanted}.{uuid.uuid4().hex[:8]}"


async def defaults_for(request: web.Request, model: str) -> Defaults:
    """What parsing needs to know of this request. `model`: the name in the body, if it is a string."""
    who = caller(request)
    doors = who.doors
    settings = doors.settings
    resolved = doors.models.resolve(model)
    return Defaults(
        model=resolved,
        limits=settings.limits,
        sampling=await doors.sampling_defaults(resolved),
        timeout_s=settings.request_timeout_s,
        tenant=who.tenant,
        cache_salt=f"key:{who.tenant}" if settings.isolate_by_key and who.tenant else "",
        routing_key=request.headers.get("x-headrace-routing-key", request.headers.get("x-smg-routing-key", ""))[:1024],
        traceparent=request.headers.get("traceparent", "")[:256],
        request_id=free_id(doors, who.request_id),
        reasoning_parser=settings.reasoning_parser,
        tool_call_parser=settings.tool_call_parser,
        usage_by_default=settings.usage_by_default,
    )
