"""The REST routes, and who may use each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from gateway.api import admin, native, openai_chat, openai_completions, openai_models, probes
from gateway.api.auth import Access
from gateway.api.connection import expect_later
from gateway.api.context import DOORS
from gateway.api.doors import Doors
from gateway.api.middleware import ACCESS, DRAINING, around

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

ROUTES: tuple[tuple[str, str, Handler, Access], ...] = (
    ("POST", "/v1/chat/completions", openai_chat.chat_completions, Access.USER),
    ("POST", "/v1/completions", openai_completions.completions, Access.USER),
    ("GET", "/v1/models", openai_models.list_models, Access.USER),
    ("GET", "/v1/models/{model:.+}", openai_models.get_model, Access.USER),
    ("POST", "/v1/tokenize", openai_models.tokenize, Access.USER),
    ("POST", "/v1/detokenize", openai_models.detokenize, Access.USER),
    ("POST", "/tokenize", openai_models.tokenize, Access.USER),
    ("POST", "/detokenize", openai_models.detokenize, Access.USER),
    ("POST", "/generate", native.generate, Access.USER),
    ("PUT", "/generate", native.generate, Access.USER),
    ("POST", "/abort_request", native.abort_request, Access.USER),
    ("GET", "/model_info", admin.model_info, Access.USER),
    ("GET", "/get_model_info", admin.model_info, Access.USER),
    ("GET", "/server_info", admin.server_info, Access.ADMIN),
    ("GET", "/get_server_info", admin.server_info, Access.ADMIN),
    ("GET", "/v1/loads", admin.loads, Access.USER),
    ("GET", "/get_loads", admin.loads, Access.USER),
    ("GET", "/flush_cache", admin.flush_cache, Access.ADMIN),
    ("POST", "/flush_cache", admin.flush_cache, Access.ADMIN),
    ("GET", "/workers", admin.list_workers, Access.ADMIN),
    ("POST", "/workers", admin.add_worker, Access.ADMIN),
    ("POST", "/workers/{worker:.+}/drain", admin.drain_worker, Access.ADMIN),
    ("GET", "/workers/{worker:.+}", admin.get_worker, Access.ADMIN),
    ("DELETE", "/workers/{worker:.+}", admin.delete_worker, Access.ADMIN),
    ("GET", "/health", probes.health, Access.OPEN),
    ("GET", "/liveness", probes.health, Access.OPEN),
    ("GET", "/ready", probes.ready, Access.OPEN),
    ("GET", "/readiness", probes.ready, Access.OPEN),
    ("GET", "/health_generate", probes.health_generate, Access.USER),
)


def make_app(doors: Doors, *, draining: asyncio.Event, report: dict[str, Any], metrics: CollectorRegistry | None = None) -> web.Application:
    """The application. `metrics`: serve /metrics here too."""
    app = web.Application(middlewares=[around], client_max_size=doors.settings.max_body + 1)
    app[DOORS] = doors
    app[DRAINING] = draining
    app[probes.DEEP] = probes.DeepProbe(doors)
    app[admin.REPORT] = report
    access: dict[str, Access] = {}
    for method, path, handler, needed in ROUTES:
        route = app.router.add_route(method, path, handler, expect_handler=expect_later)
        if needed is Access.OPEN:
            app.router.add_route("HEAD", path, handler)
        assert route.resource is not None
        access[route.resource.canonical] = needed
    if metrics is not None:
        app.router.add_get("/metrics", _metrics(metrics))
        access["/metrics"] = Access.OPEN
    app[ACCESS] = access
    return app


def _metrics(registry: CollectorRegistry) -> Handler:
    async def metrics(request: web.Request) -> web.StreamResponse:
        return web.Response(body=generate_latest(registry), headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"})

    return metrics
