"""The worker's three services, opened together once the model is loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import grpc

from protos.scheduler.v1 import cache_events_pb2, cache_events_pb2_grpc, scheduler_pb2_grpc
from protos.scheduler.v1 import scheduler_pb2 as pb
from services.common.metrics import Metrics
from services.common.prefix_hash import BLOCK_SIZE
from services.scheduler.cache.events import CacheSnapshot
from services.scheduler.convert.limits import RequestBounds
from services.scheduler.convert.load import load_message
from services.scheduler.convert.submit import SubmitConverter
from services.scheduler.delivery import EngineClient, Facts
from services.scheduler.hub import Hub
from services.scheduler.machine import Texts
from services.scheduler.servicer.admin_servicer import AdminServicer
from services.scheduler.servicer.cache_servicer import CacheServicer
from services.scheduler.servicer.info import Identity, WorkerInfo
from services.scheduler.servicer.scheduler_servicer import SchedulerServicer
from services.scheduler.servicer.session import SessionDeps
from services.scheduler.worker_metrics import WorkerMetrics


class Doors:
    """Built closed: calls are refused as "loading" until `open`."""

    NAMES = ("headrace.scheduler.v1.Scheduler", "headrace.scheduler.v1.SchedulerAdmin", "headrace.scheduler.v1.CacheEvents")

    def __init__(
        self, hub: Hub, engine: EngineClient, worker_metrics: WorkerMetrics, metrics: Metrics, request_stop: Callable[[], None]
    ) -> None:
        self._hub = hub
        self._engine = engine
        self._metrics = worker_metrics
        self._scheduler = SchedulerServicer()
        self._admin = AdminServicer(self._flush, request_stop, worker_metrics.cache_flushes)
        self.cache = CacheServicer(metrics)

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the services."""
        scheduler_pb2_grpc.add_SchedulerServicer_to_server(self._scheduler, server)  # type: ignore[no-untyped-call]
        scheduler_pb2_grpc.add_SchedulerAdminServicer_to_server(self._admin, server)  # type: ignore[no-untyped-call]
        cache_events_pb2_grpc.add_CacheEventsServicer_to_server(self.cache, server)  # type: ignore[no-untyped-call]

    def open(self, facts: Facts, texts: Texts, identity: Identity) -> None:
        """Let requests in."""
        info = facts.info
        worker = WorkerInfo(identity, info, facts.report, self._load, self._decisions)
        bounds = RequestBounds(
            frozenset({identity.model, identity.model_path}), info.vocab_size, info.context_length, identity.weight_version
        )
        deps = SessionDeps(
            hub=self._hub,
            converter=SubmitConverter(bounds, texts.stops, texts.grammars, texts.processors),
            welcome=worker.welcome(),
            load=self._load,
            turn_age_s=self._engine.turn_age_s,
            merged_frames=self._metrics.merged_frames,
        )
        self._scheduler.open_for_business(deps, worker)
        cache_info = cache_events_pb2.CacheInfo(
            boot_id=identity.boot_id,
            model=identity.model,
            model_digest=info.model_digest,
            block_size=BLOCK_SIZE,
            publishes_blocks=facts.publishes_blocks,
        )
        self.cache.open_for_business(cache_info, self._snapshot, self._load)

    def _load(self) -> pb.Load:
        load = self._engine.load
        assert load is not None
        return load_message(load, self._engine.turn_age_s())

    async def _decisions(self, count: int) -> Sequence[dict[str, Any]]:
        found = await self._engine.decisions(count)
        return [decision.as_dict() for decision in found]

    async def _snapshot(self) -> CacheSnapshot:
        return await self._engine.cache_snapshot()

    async def _flush(self) -> int | None:
        return await self._engine.flush_cache()
