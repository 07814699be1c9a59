"""Settings of `headrace up` itself; everything else belongs to one of the services."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.models.catalog import DEFAULT_MODEL
from services.common.config import at_least, option


@dataclass(frozen=True)
class UpConfig:
    """What the all-in-one launcher decides; the other flags go to the services."""

    model: str = option(DEFAULT_MODEL, "name of a known model, Hugging Face folder, .gguf file, or hub id owner/name", group="Model")
    workers: int = option(1, "scheduler-workers to start; the cores are divided among them", group="Layout", check=at_least(1))
    host: str = option("127.0.0.1", "address the gateway's doors bind; everything else stays on loopback", group="Network")
    port: int = option(30000, "REST port of the gateway; the others follow from it (gRPC +1, tokenizer +10, …)", group="Network")
    startup_timeout: float = option(900.0, "time until everything must be ready", unit="s", group="Lifecycle", check=at_least(1))
    stop_timeout: float = option(60.0, "time for requests in flight when it is stopped", unit="s", group="Lifecycle", check=at_least(0))
    skip_server_warmup: bool = option(False, "do not send the first request that warms everything up", group="Lifecycle")
