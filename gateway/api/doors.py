"""What every door works with."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gateway.api.auth import KeyRing
from gateway.api.record import Recorder
from gateway.api.schema.limits import Limits, SamplingDefaults, from_generation_config
from gateway.api.sse import StreamKeeper
from gateway.checking.checker import SchemaChecker
from gateway.clients.pieces import PieceTables
from gateway.clients.text_stage import TextPool
from gateway.clients.tokenizer import TokenizerClient
from gateway.clients.worker_admin import WorkerAdmin
from gateway.models import ModelCatalog
from gateway.pipeline import Pipeline
from gateway.workers.registry import Registry


@dataclass(frozen=True, slots=True)
class DoorSettings:
    """Choices of the operator that doors follow. max_body: bytes, before and after decompression."""

    limits: Limits
    max_body: int
    request_timeout_s: float | None
    sampling_defaults: str
    default_seed: int | None
    tool_call_parser: str
    reasoning_parser: str
    incremental_output: bool
    usage_by_default: bool
    cache_report: bool
    isolate_by_key: bool
    shared_port: bool
    cors_origins: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Doors:
    """The parts behind the doors, REST and gRPC alike."""

    settings: DoorSettings
    pipeline: Pipeline
    models: ModelCatalog
    tokenizer: TokenizerClient
    text: TextPool
    pieces: PieceTables
    registry: Registry
    admin: WorkerAdmin
    keeper: StreamKeeper
    recorder: Recorder
    keys: KeyRing
    checker: SchemaChecker

    async def sampling_defaults(self, model: str) -> SamplingDefaults:
        """What the model's own generation configuration recommends, where that is wanted, and the operator's seed."""
        seed = self.settings.default_seed
        if self.settings.sampling_defaults != "model":
            return SamplingDefaults(seed=seed)
        info = await self.tokenizer.info(model)
        return replace(from_generation_config(info.generation_defaults), seed=seed)
