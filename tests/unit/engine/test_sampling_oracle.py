"""Every sampling parameter at once against a naive statement of it, and the same numbers whatever befalls a request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from transformers.generation.logits_process import (
    LogitsProcessor,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from services.scheduler.core.messages import ChoiceSpec, StopSpec, SubmitRequest
from services.scheduler.core.plan import RowStart, SamplingSpec
from services.scheduler.core.scheduler import Scheduler
from services.scheduler.core.settings import SchedulerConfig
from services.scheduler.engine.draw import Purpose, uniforms
from services.scheduler.engine.row_state import RowState
from services.scheduler.engine.sampler import Sampler
from tests.unit.engine.driver import answers_of, native_engine
from tests.unit.engine.models import save_tiny

VOCAB = 300
Shares = npt.NDArray[np.float64]
_ROUNDING = 2e-5

_IDS = st.lists(st.integers(0, VOCAB - 1), max_size=12)
_SPECS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.3, 0.8, 1.0, 1.7]),
        "top_p": st.sampled_from([0.05, 0.5, 0.9, 1.0]),
        "top_k": st.sampled_from([-1, 2, 7, 250]),
        "min_p": st.sampled_from([0.0, 0.02, 0.4]),
        "frequency_penalty": st.sampled_from([0.0, 0.7, -1.3]),
        "presence_penalty": st.sampled_from([0.0, 1.1, -0.6]),
        "repetition_penalty": st.sampled_from([1.0, 1.6, 0.7]),
        "min_new_tokens": st.sampled_from([0, 6]),
        "logit_bias": st.lists(
            st.tuples(st.integers(0, VOCAB - 1), st.sampled_from([-8.0, 3.5])), max_size=4, unique_by=lambda b: b[0]
        ).map(tuple),
        "suppress_until_min": st.lists(st.integers(0, VOCAB - 1), max_size=3).map(tuple),
        "seed": st.integers(0, 2**64 - 1),
        "choice": st.integers(0, 5),
    }
)


def _edited(logits: npt.NDArray[np.float32], spec: SamplingSpec, prompt: list[int], output: list[int], allowed: set[int] | None) -> Shares:
    """Penalties, bias, minimum length and mask, one token at a time."""
    values = logits.astype(np.float64)
    for token in range(VOCAB):
        if token in prompt or token in output:
            values[token] = values[token] / spec.repetition_penalty if values[token] > 0 else values[token] * spec.repetition_penalty
        values[token] -= output.count(token) * spec.frequency_penalty + (token in output) * spec.presence_penalty
        values[token] += dict(spec.logit_bias).get(token, 0.0)
        if (len(output) < spec.min_new_tokens and token in spec.suppress_until_min) or (allowed is not None and token not in allowed):
            values[token] = -np.inf
    return values


def _kept(values: Shares, spec: SamplingSpec) -> Shares:
    """Shares of the ids that pass all three filters. Passes over cases in which rounding decides who passes."""
    shares = np.exp((values - values.max()) / spec.temperature)
    shares /= shares.sum()
    order = np.argsort(-shares, kind="stable")
    ranked = shares[order]
    before = ranked.cumsum() - ranked
    keep = (before < spec.top_p) & (ranked >= spec.min_p * ranked[0]) & (ranked > 0)
    if spec.top_k > 0:
        keep &= np.arange(VOCAB) < spec.top_k
        at = min(spec.top_k, VOCAB - 1)
        assume(ranked[at - 1] - ranked[at] > 1e-7 * ranked[at - 1] or ranked[at] == 0)
    if spec.top_p < 1.0:
        assume(np.abs(before[1:] - spec.top_p).min() > 1e-5)
    if spec.min_p > 0:
        assume(np.abs(ranked / ranked[0] - spec.min_p).min() > 1e-5)
    out = np.zeros(VOCAB)
    out[order[keep]] = ranked[keep]
    shares = out / out.sum()
    return np.asarray(shares, np.float64)


@settings(deadline=None, max_examples=150)
@given(spec=_SPECS, prompt=_IDS, output=_IDS, noise=st.integers(0, 10_000), masked=st.booleans())
def test_the_drawn_token_is_the_naive_one(spec: dict[str, Any], prompt: list[int], output: list[int], noise: int, masked: bool) -> None:
    sampling = SamplingSpec(**spec, constrained=masked)
    random = np.random.default_rng(noise)
    logits = (random.standard_normal(VOCAB) * 2.5).astype(np.float32)
    allowed = set(random.choice(VOCAB, 40, replace=False).tolist()) - set(sampling.suppress_until_min) if masked else None
    shares = _kept(_edited(logits, sampling, prompt, output, allowed), sampling)
    state = RowState(RowStart(1, sampling, np.array(prompt, np.int32), np.array(output, np.int32)))
    sampled = Sampler(VOCAB).sample(logits[None].copy(), [state], None if allowed is None else _words(allowed)[None])
    token = int(sampled.token_ids[0])
    assert not sampled.invalid
    ends = shares.cumsum()
    seeds, choices, positions = (np.array([value], np.uint64) for value in (sampling.seed, sampling.choice, len(output)))
    drawn = uniforms(seeds, choices, positions, Purpose.SAMPLE)[0]
    assert shares[token] > 0
    assert ends[token] - shares[token] - _ROUNDING <= drawn <= ends[token] + _ROUNDING


_WARPERS: dict[str, tuple[dict[str, Any], Callable[[], LogitsProcessor]]] = {
    "top_p": ({"top_p": 0.8}, lambda: TopPLogitsWarper(0.8)),
    "top_k": ({"top_k": 9}, lambda: TopKLogitsWarper(9)),
    "min_p": ({"min_p": 0.05}, lambda: MinPLogitsWarper(0.05)),
    "repetition": ({"repetition_penalty": 1.7}, lambda: RepetitionPenaltyLogitsProcessor(1.7)),
    "reward": ({"repetition_penalty": 0.6}, lambda: RepetitionPenaltyLogitsProcessor(0.6)),
    "length": (
        {"min_new_tokens": 9, "suppress_until_min": (2, 7)},
        lambda: MinNewTokensLengthLogitsProcessor(6, 9, [2, 7], device="cpu"),
    ),
}


@pytest.mark.parametrize("name", _WARPERS)
@pytest.mark.parametrize("temperature", [0.7, 1.5])
def test_each_parameter_means_what_it_means_in_transformers(name: str, temperature: float) -> None:
    """The drawn token is where the number falls in the distribution that the library's own processors leave."""
    fields, make = _WARPERS[name]
    before = name in ("repetition", "reward", "length")  # the library edits logits, then scales, then filters
    prompt, output = [3, 4, 5, 200, 201, 202], [4, 9, 9, 299, 17]
    for seed in range(60):
        logits = (np.random.default_rng(seed).standard_normal(VOCAB) * 2.5).astype(np.float32)
        scores, ids = torch.from_numpy(logits.copy())[None], torch.tensor([prompt + output])
        chain = [TemperatureLogitsWarper(temperature), make()]
        for processor in reversed(chain) if before else chain:
            scores = processor(ids, scores)
        ends = torch.softmax(scores[0].double(), -1).cumsum(0).numpy()
        spec = SamplingSpec(temperature=temperature, seed=seed, **fields)
        state = RowState(RowStart(1, spec, np.array(prompt, np.int32), np.array(output, np.int32)))
        token = int(Sampler(VOCAB).sample(logits[None].copy(), [state], None).token_ids[0])
        seeds, choices, positions = (np.array([value], np.uint64) for value in (seed, 0, len(output)))
        drawn = uniforms(seeds, choices, positions, Purpose.SAMPLE)[0]
        assert torch.isfinite(scores[0, token])
        assert (ends[token - 1] if token else 0.0) - _ROUNDING <= drawn <= ends[token] + _ROUNDING


def _words(allowed: set[int]) -> npt.NDArray[np.int32]:
    bits = np.zeros(-(-VOCAB // 32) * 32, np.uint8)
    bits[sorted(allowed)] = 1
    return np.packbits(bits, bitorder="little").view("<i4").astype(np.int32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tiny")
    save_tiny("llama", made, changes={"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32})
    return made


def _answers(folder: Path, handles: list[int], slots: int) -> tuple[dict[int, list[int]], Scheduler]:
    """Forty sampled tokens of each request, with all that depends on earlier output, out of a pool of `slots`."""
    scheduler = Scheduler(SchedulerConfig(max_running_requests=16, schedule_conservativeness=0.0), native_engine(folder, slots))
    sampling = SamplingSpec(temperature=1.2, top_p=0.95, frequency_penalty=0.4, presence_penalty=0.3, repetition_penalty=1.2, logprobs=True)
    for handle in handles:
        prompt = np.random.default_rng(handle).integers(3, VOCAB, 10 + handle).astype(np.int32)
        scheduler.submit(SubmitRequest(f"r{handle}", prompt, (ChoiceSpec(handle, seed=77 + handle),), sampling, StopSpec(40)))
    return answers_of(scheduler), scheduler


def test_retracted_requests_go_on_with_the_numbers_they_would_have_had(folder: Path) -> None:
    together, scheduler = _answers(folder, list(range(6)), slots=120)
    assert scheduler.counters.retractions > 0
    for handle, ids in together.items():
        alone, calm = _answers(folder, [handle], slots=1024)
        assert calm.counters.retractions == 0
        assert alone[handle] == ids
