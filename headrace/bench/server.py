"""What the loaded server says about itself."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from headrace.bench.config import Target
from headrace.launcher.http import Answer, call
from services.common.config import ConfigError

_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Model, version and settings; empty where the server does not tell."""

    model: str
    version: str
    settings: dict[str, Any] = field(default_factory=dict)


def http_url(config: Target) -> str:
    """Address of the REST door, without the /v1 that OpenAI clients have in their base URL."""
    if config.base_url and config.backend != "grpc":
        return config.base_url.rstrip("/").removesuffix("/v1")
    return f"http://{config.host}:{config.port}"


def grpc_target(config: Target) -> str:
    """Address of the gRPC door."""
    return config.base_url or f"{config.host}:{config.port + 1}"


async def discover(config: Target) -> ServerFacts:
    """Wait until the server answers, then ask who it is. Raises ConfigError."""
    models = await _until_ready(config)
    names = [str(model.get("id")) for model in models]
    if config.model and names and config.model not in names:
        raise ConfigError(f"--model {config.model!r}: the server has {', '.join(names)}")
    if not (config.model or names):
        raise ConfigError("--model: the server lists none, so name it")
    settings = _object(await _get(config, "/server_info"))
    version = config.server_version or str(settings.get("version") or _object(await _get(config, "/version")).get("version") or "")
    return ServerFacts(config.model or names[0], version, settings)


async def flush_cache(config: Target) -> None:
    """Empty the prefix cache. Raises ConfigError if the server does not do it."""
    answer = await _call(config, "POST", "/flush_cache")
    if answer.status != 200:
        raise ConfigError(f"--flush-cache: the server answered {answer.status}: {answer.body[:200]}")


async def _until_ready(config: Target) -> list[dict[str, Any]]:
    begin = time.monotonic()
    while True:
        answer = await _get(config, "/v1/models")
        if answer.status == 200:
            listed = _object(answer).get("data")
            return listed if isinstance(listed, list) else []
        if time.monotonic() - begin > config.ready_check_timeout_sec:
            raise ConfigError(f"{http_url(config)}/v1/models: not ready ({answer.status} {answer.body[:200]})")
        await asyncio.sleep(_POLL_S)


async def _get(config: Target, path: str) -> Answer:
    return await _call(config, "GET", path)


async def _call(config: Target, method: str, path: str) -> Answer:
    url = urlsplit(http_url(config))
    tls = url.scheme == "https"
    port = url.port or (443 if tls else 80)
    return await asyncio.to_thread(call, url.hostname or "", port, method, url.path + path, api_key=config.api_key, tls=tls)


def _object(answer: Answer) -> dict[str, Any]:
    try:
        value = json.loads(answer.body) if answer.status == 200 else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
