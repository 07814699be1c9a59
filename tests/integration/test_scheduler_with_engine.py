"""Scheduler and native engine together: no way of scheduling changes what a request is answered."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from services.scheduler.config import SchedulerConfig as Flags
from services.scheduler.core.messages import ChoiceSpec, StopSpec, SubmitRequest, TurnOutput
from services.scheduler.core.plan import SamplingSpec
from services.scheduler.core.scheduler import Scheduler
from services.scheduler.core.settings import SchedulerConfig
from services.scheduler.engine.build import build_engine
from services.scheduler.engine.interface import Engine
from services.scheduler.engine.memory import HostMemory
from services.scheduler.report import StartupReport
from tests.unit.engine.models import save_tiny

WAYS: list[tuple[dict[str, Any], int, int]] = [
    ({}, 1500, 1),
    ({"disable_overlap_schedule": False}, 1500, 1),
    ({"enable_mixed_chunk": True, "chunked_prefill_size": 32}, 1500, 1),
    ({"init_new_token_ratio": 0.01, "disable_overlap_schedule": False, "chunked_prefill_size": 48}, 300, 1),
    ({"init_new_token_ratio": 0.01, "in_round_prefix_sharing": True}, 320, 16),
    ({"schedule_policy": "lpm", "enable_mixed_chunk": True, "chunked_prefill_size": 16, "disable_overlap_schedule": False}, 400, 4),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny("llama", folder, changes={"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32})
    return folder


def engine(folder: Path, pool: int, page: int) -> Engine:
    flags = Flags(model_path=str(folder), max_total_tokens=pool, page_size=page, max_running_requests=16, cpu_threads=1, dtype="float32")
    return build_engine(flags, folder, HostMemory(), StartupReport()).engine


def test_the_engine_knows_the_size_of_its_tensors(model: Path) -> None:
    info = engine(model, 1500, 1).info
    assert info.kv_cache_bytes == 1501 * info.bytes_per_token  # the padding slot is there too
    assert info.weight_bytes > 0


@pytest.mark.parametrize(("page", "tokens"), [(1, 1500), (16, 1488)])
def test_a_pool_holds_as_many_tokens_as_it_says(model: Path, page: int, tokens: int) -> None:
    """Whole pages; the page that padding is written to comes on top."""
    assert Scheduler(SchedulerConfig(), engine(model, 1500, page)).load().kv_total_tokens == tokens


def requests() -> list[SubmitRequest]:
    """Greedy and sampled, with penalties and shared beginnings."""
    random = Random(0)
    common = [random.randrange(3, 300) for _ in range(100)]
    made = []
    for number in range(20):
        prompt = common[: random.randrange(90)] + [random.randrange(3, 300) for _ in range(random.randrange(1, 60))]
        sampling = SamplingSpec(
            temperature=random.choice([0.0, 1.0]),
            top_p=0.9,
            frequency_penalty=random.choice([0.0, 0.5]),
            repetition_penalty=random.choice([1.0, 1.2]),
        )
        stops = StopSpec(max_new_tokens=random.randrange(5, 40))
        made.append(SubmitRequest(f"r{number}", np.array(prompt, np.int32), (ChoiceSpec(number, seed=number),), sampling, stops))
    return made


def answers(engine: Engine, wanted: list[SubmitRequest], together: bool = True, **config: Any) -> tuple[dict[int, list[int]], Scheduler]:
    scheduler = Scheduler(SchedulerConfig(**config), engine)
    found: dict[int, list[int]] = {}

    def read(output: TurnOutput) -> None:
        columns, offset = output.tokens, 0
        for handle, count in zip(columns.handles, columns.counts, strict=True):
            found.setdefault(handle, []).extend(columns.token_ids[offset : offset + count])
            offset += count
        assert all(final.error is None for final in output.finals)

    for number, request in enumerate(wanted):
        scheduler.submit(request)
        if number % 3 == 0:
            read(scheduler.turn())
        while not together and scheduler.has_work:
            read(scheduler.turn())
    while scheduler.has_work:
        read(scheduler.turn())
    scheduler.check_integrity()
    assert scheduler.load().kv_used_tokens == 0
    return found, scheduler


def test_every_way_of_scheduling_gives_the_same_tokens(model: Path) -> None:
    wanted = requests()
    alone, _ = answers(engine(model, 1500, 1), wanted, together=False, disable_radix_cache=True)
    retractions = mixed = cached = 0
    for config, pool, page in WAYS:
        found, scheduler = answers(engine(model, pool, page), wanted, **config)
        assert found == alone, config
        retractions += scheduler.counters.retractions
        mixed += scheduler.counters.mixed_steps
        cached += scheduler.counters.cached_tokens
    assert retractions and mixed and cached
