"""Around every HTTP request: its id, the key, CORS, the one place where errors become answers, metrics, the access log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from aiohttp import web

from gateway.api.auth import Access
from gateway.api.connection import SERVER, Connection
from gateway.api.context import DOORS, REFUSED, REQUEST_ID, TENANT, request_id_of
from gateway.api.doors import Doors
from gateway.api.errors import as_headrace, dumps, native_body, openai_body, retry_after
from gateway.api.not_offered import no_route
from gateway.api.record import access as log_access
from services.common.errors import HeadraceError, NotFound, PermissionDenied, Unauthenticated, Unavailable

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

ACCESS = web.AppKey("access", dict)
_UNMATCHED = "unmatched"
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"))  # each is a value of a metric's label
_CONTROL = ("/abort_request", "/flush_cache", "/workers")

DRAINING = web.AppKey("draining", asyncio.Event)


class MethodNotAllowed(HeadraceError):
    """The route exists, with other methods."""

    http_status = 405
    type_name = "invalid_request_error"


def route_of(request: web.Request) -> str:
    """The route's template, or one word for all unknown ones."""
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else _UNMATCHED


@web.middleware
async def around(request: web.Request, handler: Handler) -> web.StreamResponse:
    """See the module."""
    began = time.monotonic()
    if isinstance(request.protocol, Connection):
        request.protocol.spoke()
    doors = request.app[DOORS]
    request_id = request[REQUEST_ID] = request_id_of(request)
    status = 499
    try:
        response = await _answer(request, handler, doors)
        status = response.status
        if not response.prepared:
            response.headers["x-request-id"] = request_id
            response.headers["server"] = SERVER
            _cors(request, response, doors)
        return response
    finally:
        seconds = time.monotonic() - began
        doors.recorder.http(route_of(request), request.method if request.method in _METHODS else "other", status, seconds)
        log_access(request_id, request.method, route_of(request), status, seconds, request.get(REFUSED))


async def _answer(request: web.Request, handler: Handler, doors: Doors) -> web.StreamResponse:
    if request.method == "OPTIONS" and "origin" in request.headers:
        return web.Response(status=204)
    try:
        request[TENANT] = _authenticate(request, doors)
        if request.app[DRAINING].is_set() and _is_work(request):
            raise Unavailable("this gateway is draining", code="draining")
        return await handler(request)
    except asyncio.CancelledError:
        raise
    except web.HTTPException as error:
        return _refusal(request, _from_http(error, request.path), dict(error.headers) if error.status == 405 else {})
    except ConnectionError:
        return web.Response(status=499)  # nobody reads it
    except Exception as error:
        return _refusal(request, as_headrace(error, request[REQUEST_ID]), {})


def _is_work(request: web.Request) -> bool:
    """Does it start something that a leaving gateway should not start?"""
    return request.method in ("POST", "PUT") and route_of(request) not in _CONTROL


def _from_http(error: web.HTTPException, path: str) -> HeadraceError:
    if error.status == 404:
        return NotFound(no_route(path), code="route_not_found")
    if error.status == 405:
        return MethodNotAllowed("this route does not take that method", code="method_not_allowed")
    made = HeadraceError(error.text or error.reason)
    made.http_status = error.status  # type: ignore[misc]
    return made


def _refusal(request: web.Request, error: HeadraceError, headers: dict[str, str]) -> web.Response:
    request[REFUSED] = error
    body = openai_body(error) if request.path.startswith("/v1/") else native_body(error)
    kept = {name: value for name, value in headers.items() if name.lower() == "allow"}
    if isinstance(error, Unauthenticated):
        kept["www-authenticate"] = "Bearer"
    made = web.Response(status=error.http_status, body=dumps(body), content_type="application/json", headers={**retry_after(error), **kept})
    if error.http_status == 413:
        made.force_close()
    return made


def _authenticate(request: web.Request, doors: Doors) -> str:
    wanted: Access = request.app[ACCESS].get(route_of(request), Access.USER)
    try:
        return doors.keys.check(wanted, request.headers.get("authorization"), request.headers.get("x-api-key"))
    except (Unauthenticated, PermissionDenied):
        doors.recorder.auth_failure()
        raise


def cors_headers(request: web.Request, origins: tuple[str, ...]) -> dict[str, str]:
    """Headers that let a page of an allowed origin read the answer; none for others."""
    origin = request.headers.get("origin")
    if origin is None or not (origin in origins or "*" in origins):
        return {}
    headers = {"access-control-allow-origin": origin, "vary": "origin", "access-control-expose-headers": "x-request-id"}
    if request.method == "OPTIONS":
        headers["access-control-allow-methods"] = "GET, POST, PUT, DELETE"
        headers["access-control-allow-headers"] = request.headers.get("access-control-request-headers", "authorization, content-type")
        headers["access-control-max-age"] = "600"
    return headers


def _cors(request: web.Request, response: web.StreamResponse, doors: Doors) -> None:
    response.headers.update(cors_headers(request, doors.settings.cors_origins))
