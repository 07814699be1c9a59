"""Answers to "what are you, and how are you set up?"."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from protos.common.v1 import common_pb2
from protos.scheduler.v1 import scheduler_pb2 as pb
from services.common.prefix_hash import BLOCK_SIZE
from services.common.version import PROTOCOL, VERSION
from services.scheduler.engine.interface import EngineInfo
from services.scheduler.report import StartupReport


@dataclass(frozen=True)
class Identity:
    """What distinguishes this worker and its weights from others."""

    boot_id: str
    model: str
    model_path: str
    architecture: str
    tokenizer_digest: str
    weight_version: str
    launch_command: tuple[str, ...]


class WorkerInfo:
    """Facts fixed at start, and a few looked up when asked."""

    def __init__(
        self,
        identity: Identity,
        engine: EngineInfo,
        report: StartupReport,
        load: Callable[[], pb.Load],
        decisions: Callable[[int], Awaitable[Sequence[dict[str, Any]]]],
    ) -> None:
        self._identity = identity
        self._engine = engine
        self._report = report
        self._load = load
        self._decisions = decisions
        self._started = time.monotonic()

    def welcome(self) -> pb.Welcome:
        """The first message of every Session."""
        identity, engine = self._identity, self._engine
        return pb.Welcome(
            protocol=PROTOCOL,
            boot_id=identity.boot_id,
            model_digest=engine.model_digest,
            tokenizer_digest=identity.tokenizer_digest,
            weight_version=identity.weight_version,
            quantization=engine.quantization,
            batch_invariant=engine.batch_invariant,
            block_size=BLOCK_SIZE,
            max_frame_bytes=256 * 1024,
            context_tokens=engine.context_length,
            model=identity.model,
            vocab_size=engine.vocab_size,
            pool_tokens=engine.num_slots,
        )

    def model_info(self) -> pb.GetModelInfoResponse:
        """The model, its digests and its precision."""
        identity, engine = self._identity, self._engine
        return pb.GetModelInfoResponse(
            model=identity.model,
            model_digest=engine.model_digest,
            tokenizer_digest=identity.tokenizer_digest,
            architecture=identity.architecture,
            vocab_size=engine.vocab_size,
            context_tokens=engine.context_length,
            eos_token_ids=engine.eos_token_ids,
            dtype=engine.dtype,
            quantization=engine.quantization,
            weight_version=identity.weight_version,
            batch_invariant=engine.batch_invariant,
            block_size=BLOCK_SIZE,
            model_path=identity.model_path,
        )

    async def server_info(self, decisions: int) -> pb.GetServerInfoResponse:
        """Every effective setting and computed limit, start timings, load, and the newest scheduler decisions."""
        found = await self._decisions(decisions) if decisions else []
        return pb.GetServerInfoResponse(
            version=VERSION,
            boot_id=self._identity.boot_id,
            uptime_ms=int((time.monotonic() - self._started) * 1000),
            settings=[
                common_pb2.Setting(name=s.name, value=s.value, source=s.source, reason=s.reason, unit=s.unit) for s in self._report.settings
            ],
            startup=[common_pb2.Timing(phase=phase, seconds=seconds) for phase, seconds in self._report.phases],
            load=self._load(),
            decisions_json=json.dumps(found),
            launch_command=self._identity.launch_command,
            report=self._report.text(),
            process_id=os.getpid(),
        )
