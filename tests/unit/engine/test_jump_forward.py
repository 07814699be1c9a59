"""Forced tokens computed together with the sampled one before them: the bits, penalties and draws of one step each."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from services.scheduler.core.messages import ChoiceSpec, StopSpec, SubmitRequest
from services.scheduler.core.plan import SamplingSpec
from services.scheduler.core.scheduler import Scheduler
from services.scheduler.core.settings import SchedulerConfig
from tests.unit.engine.driver import answers_of, native_engine
from tests.unit.engine.models import save_tiny
from tests.unit.scheduler.test_jump_forward import FREE, Form

VOCAB, REQUESTS = 300, 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tiny")
    save_tiny("llama", made, changes={"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32})
    return made


def _form(handle: int) -> list[int]:
    """Spans with gaps between; ids come again, so that penalties have something to count."""
    rng, form = random.Random(handle), [FREE]
    while len(form) < 50:
        form += [*rng.choices(range(4, 40), k=rng.choice([1, 2, 12])), *[FREE] * rng.randrange(1, 4)]
    return form


def _answers(folder: Path, slots: int = 1024, *, jump: bool, overlap: bool) -> tuple[dict[int, list[int]], Scheduler]:
    config = SchedulerConfig(schedule_conservativeness=0.0, disable_jump_forward=not jump, disable_overlap_schedule=not overlap)
    scheduler = Scheduler(config, native_engine(folder, slots))
    sampling = SamplingSpec(temperature=1.2, frequency_penalty=0.4, presence_penalty=0.3, repetition_penalty=1.2)
    for handle in range(REQUESTS):
        prompt = np.random.default_rng(handle).integers(3, VOCAB, 10 + handle).astype(np.int32)
        stops = StopSpec(60, min_new_tokens=20, token_ids=(2 * handle + 100,))
        grammar = None if handle == 0 else lambda handle=handle: Form(_form(handle))
        scheduler.submit(SubmitRequest(f"r{handle}", prompt, (ChoiceSpec(handle, seed=7 + handle),), sampling, stops, grammar=grammar))
    return answers_of(scheduler), scheduler


@pytest.mark.parametrize("overlap", [False, True])
def test_the_answers_are_those_of_single_steps(folder: Path, overlap: bool) -> None:
    stepped, _ = _answers(folder, jump=False, overlap=overlap)
    jumped, scheduler = _answers(folder, jump=True, overlap=overlap)
    assert jumped == stepped
    assert scheduler.counters.jumped_tokens > 20 * (REQUESTS - 1) / (1 + overlap)
    pressed, scheduler = _answers(folder, slots=120, jump=True, overlap=overlap)
    assert scheduler.counters.retractions > 0
    assert pressed == stepped
