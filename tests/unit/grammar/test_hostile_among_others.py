"""A hostile constraint beside twenty running requests: they take the turns they would take without it."""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt
import pytest

from services.scheduler.core.messages import FinishReason
from services.scheduler.grammar.desk import GrammarDesk
from services.scheduler.grammar.interface import CompiledGrammar, GrammarKind, GrammarSpec, TooCostly
from services.scheduler.grammar.request_grammar import RequestGrammar
from services.scheduler.grammar.store import GrammarStore
from tests.unit.grammar.test_store import _until
from tests.unit.scheduler.harness import Driver, prompt

OTHERS = 20
LENGTH = 40


class _Hostile:
    """Backend, grammar and matcher in one: compiling waits for `go`, each step costs `step_s` of its own clock."""

    name = "hostile"
    memory_bytes = 1
    finished = False

    def __init__(self, step_s: float) -> None:
        self.go = threading.Event()
        self.step_s = step_s
        self.now = 0.0
        self.steps = 0

    def check(self, spec: GrammarSpec) -> GrammarSpec:
        return spec

    def compile(self, spec: GrammarSpec) -> CompiledGrammar:
        self.go.wait(60)
        return self

    def matcher(self) -> _Hostile:
        return self

    def fill_mask(self, words: npt.NDArray[np.int32]) -> None:
        words[:] = -1
        self._step()

    def accept(self, token_id: int) -> bool:
        self._step()
        return True

    def rollback(self, count: int) -> None:
        raise AssertionError("nothing is taken back")

    def forced_text(self) -> str:
        return ""

    def forced_ids(self) -> list[int]:
        return []

    def _step(self) -> None:
        self.steps += 1
        self.now += self.step_s


def _running(*, overlap: bool) -> tuple[Driver, list[int]]:
    driver = Driver(disable_overlap_schedule=not overlap)
    others = [driver.submit(prompt(9, place), LENGTH) for place in range(OTHERS)]
    while not all(driver.tokens(handle) for handle in others):
        driver.turn()
    return driver, others


def _turns_to_end(driver: Driver, others: list[int]) -> int:
    for turns in range(10 * LENGTH):
        if all(driver.said[handle].final is not None for handle in others):
            return turns
        driver.turn()
    raise AssertionError("they do not come to an end")


def _asked(hostile: _Hostile, driver: Driver, handle: int) -> GrammarStore:
    store = GrammarStore(hostile)
    entry = store.entry(GrammarSpec(GrammarKind.EBNF, "hostile"))
    driver.submit(prompt(9, handle), 400, handle=handle, grammar=lambda: RequestGrammar(entry, clock=lambda: hostile.now))
    return store


@pytest.mark.parametrize("overlap", [False, True])
def test_while_it_is_compiled_the_others_take_every_turn(overlap: bool) -> None:
    usual = _turns_to_end(*_running(overlap=overlap))
    driver, others = _running(overlap=overlap)
    hostile = _Hostile(0.0)
    store = _asked(hostile, driver, 1000)
    assert _turns_to_end(driver, others) == usual
    assert (driver.scheduler.load().grammar_waiting, store.compiling, hostile.steps) == (1, 1, 0)
    assert not driver.said[1000].started
    driver.scheduler.cancel(1000)
    driver.run()
    hostile.go.set()


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize(("step_s", "most_steps"), [(2.0, 1), (0.02, 16)])
def test_once_it_proves_dear_it_is_given_up(overlap: bool, step_s: float, most_steps: int) -> None:
    usual = _turns_to_end(*_running(overlap=overlap))
    driver, others = _running(overlap=overlap)
    hostile = _Hostile(step_s)
    hostile.go.set()
    store = _asked(hostile, driver, 1000)
    _until(lambda: store.compiling == 0)
    turns = _turns_to_end(driver, others)
    assert turns <= usual + 1, "the one turn more is its own prompt's"
    assert all(len(driver.tokens(handle)) == LENGTH for handle in others)
    assert 0 < hostile.steps <= most_steps
    final = driver.final(1000)
    assert final.reason is FinishReason.ERROR
    assert final.error is not None
    assert "too much time" in final.error.message
    assert hostile.now < 3.0, "processor time it took from the others, all in all"
    with pytest.raises(TooCostly):
        store.entry(GrammarSpec(GrammarKind.EBNF, "hostile"))


def test_a_second_request_with_it_costs_nobody_anything() -> None:
    driver, others = _running(overlap=False)
    hostile = _Hostile(2.0)
    hostile.go.set()
    desk = GrammarDesk(GrammarStore(hostile))
    entry = desk.store.entry(GrammarSpec(GrammarKind.EBNF, "hostile"))
    _until(lambda: entry.ready)
    for handle in (1000, 1001):
        driver.submit(prompt(9, handle), 400, handle=handle, grammar=lambda: RequestGrammar(entry, clock=lambda: hostile.now))
    driver.run()
    assert hostile.steps <= 2, "both were in the same step"
    with pytest.raises(TooCostly):
        desk.factory("ebnf", "hostile")
    assert all(len(driver.tokens(handle)) == LENGTH for handle in others)
