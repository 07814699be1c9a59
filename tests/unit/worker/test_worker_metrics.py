"""What the worker exports and logs about its memory."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
from prometheus_client import generate_latest

from services.common.metrics import Metrics
from services.scheduler.core.log_lines import CacheLine
from services.scheduler.delivery import EngineClient, Facts
from services.scheduler.report import StartupReport
from services.scheduler.worker_metrics import WorkerMetrics
from tests.unit.scheduler.harness import Driver, prompt


class Heard:
    """An engine client whose scheduler runs right here."""

    def __init__(self, driver: Driver) -> None:
        self._scheduler = driver.scheduler
        self.counters = driver.scheduler.counters

    @property
    def load(self) -> object:
        return self._scheduler.load()

    @property
    def evicted_tokens(self) -> int:
        return self._scheduler.evicted_tokens

    @property
    def eviction_ns(self) -> int:
        return self._scheduler.eviction_ns

    def turn_age_s(self) -> float:
        return 0.0


def values(metrics: Metrics) -> dict[str, float]:
    """Series without labels, by name."""
    lines = generate_latest(metrics.registry).decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#")) if "{" not in name}


def test_evictions_and_memory_are_exported() -> None:
    driver = Driver(pool=300)
    metrics = Metrics("scheduler")
    exported = WorkerMetrics(metrics, cast(EngineClient, Heard(driver)), lambda: 0)
    info = replace(driver.engine.info, weight_bytes=1234, kv_cache_bytes=5678)
    exported.on_start(Facts(info, "none", True, StartupReport()))
    computed = 0
    for number in range(8):
        driver.submit(prompt(90, number), 10)
        driver.run()
        computed += 99  # the last token is never computed
        found = values(metrics)
        kinds = [found[f"headrace_worker_kv_{kind}_tokens"] for kind in ("used", "evictable", "free")]
        assert sum(kinds) == found["headrace_worker_kv_capacity_tokens"] == 300
        assert found["headrace_worker_evicted_tokens_total"] == computed - kinds[1], "every token that is gone was evicted"
    assert found["headrace_worker_eviction_seconds_total"] > 0
    assert (found["headrace_worker_weight_bytes"], found["headrace_worker_kv_cache_bytes"]) == (1234, 5678)


@pytest.mark.parametrize(
    ("groups", "swa", "ssm"), [(("full",), False, False), (("full", "window"), True, False), (("full", "recurrent"), False, True)]
)
def test_the_cache_line_names_the_kinds_of_state(groups: tuple[str, ...], swa: bool, ssm: bool) -> None:
    line = str(CacheLine("default", "RadixCache", "lru", groups))
    assert line.startswith("Tree cache initialized: source=default impl=RadixCache ")
    assert f"hybrid_swa={swa} hybrid_ssm={ssm} hicache_attached=False core=python" in line


def test_a_scheduler_says_which_cache_it_has() -> None:
    assert str(Driver().scheduler.cache_line("default")).endswith(
        "impl=RadixCache hybrid_swa=False hybrid_ssm=False hicache_attached=False core=python policy=lru"
    )
    assert "source=user impl=NoCache" in str(Driver(disable_radix_cache=True).scheduler.cache_line("user"))
