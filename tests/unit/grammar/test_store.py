"""Grammars are compiled once, in the background, within a time limit; invalid ones are remembered, old ones dropped."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

import pytest

from services.common.errors import Overloaded
from services.common.metrics import Metrics
from services.scheduler.grammar.backends import make_backend
from services.scheduler.grammar.compile_pool import CompilePool, CompileTimeout
from services.scheduler.grammar.compiler_processes import CompilerGone
from services.scheduler.grammar.desk import GrammarDesk
from services.scheduler.grammar.exported import export
from services.scheduler.grammar.interface import CompiledGrammar, GrammarKind, GrammarSpec, InvalidGrammar, Matcher
from services.scheduler.grammar.store import Entry, GrammarStore
from services.scheduler.grammar.xgrammar_backend import XGrammarBackend
from tests.unit.grammar.following import backend


class Sized:
    """A compiled grammar of a given size."""

    def __init__(self, memory_bytes: int) -> None:
        self.memory_bytes = memory_bytes

    def matcher(self) -> Matcher:
        raise AssertionError("nobody follows it")


class SlowBackend:
    """Compiles when told to; texts that begin with `bad` fail the check, with `late` the compile."""

    name = "slow"

    def __init__(self) -> None:
        self.go = threading.Event()
        self.go.set()
        self.compiled: list[str] = []

    def check(self, spec: GrammarSpec) -> GrammarSpec:
        if spec.text.startswith("bad"):
            raise InvalidGrammar("bad", spec.kind)
        return spec

    def compile(self, spec: GrammarSpec) -> CompiledGrammar:
        self.compiled.append(spec.text)
        self.go.wait(20)
        if spec.text.startswith("late"):
            raise InvalidGrammar("late", spec.kind)
        if spec.text.startswith("crash"):
            raise OSError("crash")
        return Sized(100)


def _spec(text: str) -> GrammarSpec:
    return GrammarSpec(GrammarKind.REGEX, text)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def _ready(entry: Entry) -> Entry:
    _until(lambda: entry.ready)
    return entry


def test_a_grammar_is_compiled_once() -> None:
    slow = SlowBackend()
    slow.go.clear()
    store = GrammarStore(slow)
    first, second = store.entry(_spec("a")), store.entry(_spec("a"))
    assert first is second
    assert not first.ready
    assert store.compiling == 1
    slow.go.set()
    assert _ready(first).error is None
    assert first.grammar.memory_bytes == 100
    assert slow.compiled == ["a"]
    assert (store.counters.hits, store.counters.misses) == (1, 1)


def test_invalid_grammars_are_remembered() -> None:
    slow = SlowBackend()
    store = GrammarStore(slow)
    for _ in range(3):
        with pytest.raises(InvalidGrammar, match="bad"):
            store.entry(_spec("bad"))
    slow.go.clear()
    late = store.entry(_spec("late"))
    slow.go.set()
    assert isinstance(_ready(late).error, InvalidGrammar)
    with pytest.raises(InvalidGrammar, match="late"):
        store.entry(_spec("late"))
    assert slow.compiled == ["late"]
    assert (store.counters.invalid, store.counters.refused) == (2, 4)
    slow.go.clear()
    crash = store.entry(_spec("crash"))
    slow.go.set()
    assert "crash" in str(_ready(crash).error)
    assert (store.counters.errors, store.counters.misses, store.counters.hits) == (1, 2, 0)


async def test_what_is_exported_is_what_happened() -> None:
    metrics = Metrics("scheduler")
    slow = SlowBackend()
    desk = GrammarDesk(GrammarStore(slow))
    export(desk.store, metrics)
    for text in ("a", "a", "b", "bad", "bad"):
        with contextlib.suppress(InvalidGrammar):
            await desk.settle("regex", text, patience_s=20)
            desk.factory("regex", text)
    slow.go.clear()
    await desk.settle("regex", "c", patience_s=0.001)

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(f"headrace_worker_{name}", labels)

    assert [value("grammar_lookups_total", result=result) for result in ("miss", "hit", "invalid")] == [3, 1, 2]
    assert [value("grammar_failures_total", reason=reason) for reason in ("invalid", "too_costly", "error")] == [1, 0, 0]
    _until(lambda: value("grammar_compile_seconds_count") == 2)
    assert (value("grammars_compiling"), value("grammar_cache_entries")) == (1, 4)
    _until(lambda: (value("grammar_cache_bytes") or 0) > 200)
    slow.go.set()


def test_the_store_is_bounded_in_number_and_bytes() -> None:
    store = GrammarStore(SlowBackend(), max_entries=10)
    for index in range(50):
        _ready(store.entry(_spec(f"a{index}")))
    assert len(store) == 10
    store = GrammarStore(SlowBackend(), max_bytes=550)
    for index in range(50):
        _ready(store.entry(_spec(f"a{index}")))
    _until(lambda: store.bytes_held <= 550)
    assert 1 <= len(store) <= 5
    store.entry(_spec("a0"))


def test_a_late_compile_fails_and_another_takes_its_thread() -> None:
    clock = [0.0]
    pool = CompilePool(1, 5.0, clock=lambda: clock[0])
    gate = threading.Event()
    stuck = [pool.submit(lambda: gate.wait(20)) for _ in range(4)]
    for future in stuck:
        _until(lambda: pool.waiting > 0)
        clock[0] += 6.0
        pool.expire()
        assert isinstance(future.exception(timeout=1), CompileTimeout)
    with pytest.raises(Overloaded, match="time limit"):
        pool.submit(lambda: 1)
    gate.set()
    _until(lambda: pool.waiting == 0)

    def accepted() -> bool:
        try:
            return pool.submit(lambda: 7).result(timeout=5) == 7
        except Overloaded:
            return False

    _until(accepted)


async def test_settling_gives_a_bad_grammar_the_time_to_show() -> None:
    slow = SlowBackend()
    desk = GrammarDesk(GrammarStore(slow))
    with pytest.raises(InvalidGrammar, match="late"):
        await desk.settle("regex", "late", patience_s=20)
    slow.go.clear()
    await desk.settle("regex", "slow", patience_s=0.01)
    assert not desk.factory("regex", "slow")().ready
    slow.go.set()
    with pytest.raises(InvalidGrammar, match="bad"):
        await desk.settle("regex", "bad" + "x" * 5000)


@pytest.mark.parametrize("name", ["none", "xgrammar"])
def test_without_a_backend_constraints_are_refused(name: str) -> None:
    refusing = make_backend(name, None)
    for act in (refusing.check, refusing.compile):
        with pytest.raises(InvalidGrammar, match=r"--grammar-backend none|tokenizer"):
            act(_spec("a"))


def test_a_compile_over_its_time_is_killed_and_the_next_one_works() -> None:
    usual = backend("xgrammar")
    assert isinstance(usual, XGrammarBackend)
    assert usual.compile(usual.check(_spec("b+"))).memory_bytes > 0
    hostile = "(([a-z]{1,900}b){1,30}|.{500}x.{400}){1,2}"
    with pytest.raises(CompilerGone):
        usual._compilers.of(_spec("b")).processes.compile("regex", hostile, 0.05)
    assert usual.compile(usual.check(_spec("a+"))).memory_bytes > 0
