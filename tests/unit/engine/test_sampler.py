"""The sampler against a plain NumPy statement of what each parameter means."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.core.plan import RowStart, SamplingSpec
from services.scheduler.engine.distribution import largest
from services.scheduler.engine.draw import Purpose, uniforms
from services.scheduler.engine.row_state import RowState
from services.scheduler.engine.sampler import Sampler

VOCAB = 700
NO_IDS = np.empty(0, np.int32)
Logits = npt.NDArray[np.float32]


def _logits(seed: int, rows: int = 1, spread: float = 2.0) -> Logits:
    return (np.random.default_rng(seed).standard_normal((rows, VOCAB)) * spread).astype(np.float32)


def _state(prompt: list[int] | None = None, output: list[int] | None = None, **spec: Any) -> RowState:
    ids = (np.array(prompt or [], np.int32), np.array(output or [], np.int32))
    return RowState(RowStart(1, SamplingSpec(**spec), *ids))


def _softmax(logits: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    wide = np.exp(logits.astype(np.float64) - logits.max())
    shares: npt.NDArray[np.float64] = wide / wide.sum()
    return shares


def _reference(logits: Logits, top_p: float = 1.0, top_k: int = -1, min_p: float = 0.0) -> npt.NDArray[np.float64]:
    """The filtered, renormalised distribution, by a full stable sort."""
    shares = _softmax(logits)
    order = np.argsort(-shares, kind="stable")
    ranked = shares[order]
    keep = np.ones(ranked.size, bool)
    if top_k > 0:
        keep &= np.arange(ranked.size) < top_k
    keep &= (ranked.cumsum() - ranked) < top_p
    keep &= ranked >= min_p * ranked[0]
    out = np.zeros_like(shares)
    out[order[keep]] = ranked[keep]
    shares = out / out.sum()
    return np.asarray(shares, np.float64)


def _frequencies(logits: Logits, count: int, **spec: Any) -> npt.NDArray[np.float64]:
    sampler = Sampler(VOCAB)
    states = [_state(seed=seed, **spec) for seed in range(count)]
    ids = np.concatenate([sampler.sample(np.repeat(logits, 200, 0), states[i : i + 200], None).token_ids for i in range(0, count, 200)])
    shares: npt.NDArray[np.float64] = np.bincount(ids, minlength=VOCAB) / count
    return shares


@pytest.mark.parametrize(
    "spec",
    [{}, {"temperature": 0.5}, {"top_p": 0.8}, {"top_k": 7}, {"min_p": 0.1}, {"top_p": 0.7, "top_k": 20, "min_p": 0.02}],
)
def test_draws_follow_the_filtered_distribution(spec: dict[str, Any]) -> None:
    logits = _logits(3)
    filters = {name: value for name, value in spec.items() if name != "temperature"}
    expected = _reference(logits[0] / np.float32(spec.get("temperature", 1.0)), **filters)
    found = _frequencies(logits, 6000, **spec)
    assert not found[expected == 0].any()
    likely = expected > 0.01
    deviation = np.sqrt(expected[likely] * (1 - expected[likely]) / 6000)
    assert (np.abs(found[likely] - expected[likely]) < 5 * deviation).all()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    spread=st.sampled_from([0.0, 0.5, 3.0, 20.0]),
    top_p=st.sampled_from([1.0, 0.999, 0.9, 0.3, 0.01]),
    top_k=st.sampled_from([-1, 1, 2, 50, VOCAB, 10**6]),
    min_p=st.sampled_from([0.0, 0.05, 1.0]),
)
def test_no_draw_leaves_the_allowed_set(seed: int, spread: float, top_p: float, top_k: int, min_p: float) -> None:
    logits = np.round(_logits(seed, spread=spread), 1)  # rounding makes ties
    allowed = _reference(logits[0], top_p=min(1.0, top_p + 1e-6), top_k=top_k, min_p=min_p * (1 - 1e-6)) > 0
    states = [_state(seed=draw, top_p=top_p, top_k=top_k, min_p=min_p) for draw in range(20)]
    ids = Sampler(VOCAB).sample(np.repeat(logits, 20, 0), states, None).token_ids
    assert allowed[ids].all()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 3000), count=st.integers(1, 80))
def test_largest_equals_a_stable_sort(seed: int, size: int, count: int) -> None:
    values = np.random.default_rng(seed).integers(0, 50, size).astype(np.float32)
    np.testing.assert_array_equal(largest(values, count), np.argsort(-values, kind="stable")[:count])


def test_greedy_is_argmax_and_tiny_temperature_is_greedy() -> None:
    logits = _logits(1, rows=3)
    states = [_state(temperature=0.0), _state(temperature=1e-7), _state(temperature=0.7, top_k=1)]
    np.testing.assert_array_equal(Sampler(VOCAB).sample(logits.copy(), states, None).token_ids, logits.argmax(1))


def test_penalties_bias_and_minimum_length_change_logits_as_documented() -> None:
    logits = _logits(2)[0]
    prompt, output = [3, 4, 4], [4, 9, 9, 9]
    state = _state(
        prompt,
        output,
        frequency_penalty=0.3,
        presence_penalty=0.2,
        repetition_penalty=1.5,
        logit_bias=((11, 5.0), (9, -1.0)),
        min_new_tokens=6,
        suppress_until_min=(2, 5),
    )
    expected = logits.copy()
    for token in {3, 4, 9}:
        expected[token] = expected[token] / 1.5 if expected[token] > 0 else expected[token] * 1.5
    expected[4] -= 0.3 * 1 + 0.2
    expected[9] -= 0.3 * 3 + 0.2 + 1.0
    expected[11] += 5.0
    expected[[2, 5]] = -np.inf
    state.edit(logits)
    np.testing.assert_allclose(logits, expected, rtol=1e-6)
    state.accept(1)
    state.accept(1)
    again = _logits(2)[0]
    state.edit(again)
    assert np.isfinite(again[[2, 5]]).all()


def test_counts_kept_step_by_step_equal_counts_rebuilt_after_a_resume() -> None:
    spec: dict[str, Any] = {"temperature": 0.8, "seed": 5, "frequency_penalty": 0.7, "presence_penalty": -0.4, "repetition_penalty": 1.2}
    sampler, running = Sampler(VOCAB), _state([1, 2], **spec)
    ids = [int(sampler.sample(_logits(step), [running], None).token_ids[0]) for step in range(120)]
    for cut in (1, 63, 64, 65, 119):
        resumed = _state([1, 2], ids[:cut], **spec)
        assert int(sampler.sample(_logits(cut), [resumed], None).token_ids[0]) == ids[cut]


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    specs: list[dict[str, Any]] = [
        {},
        {"temperature": 0.0, "logprobs": True, "top_logprobs": 3},
        {"top_p": 0.6, "logprobs": True},
        {"top_k": 1, "temperature": 0.7, "logprobs": True},
        {"top_k": 9, "frequency_penalty": 1.0},
        {"min_p": 0.2, "scaled_logprobs": True, "logprobs": True, "temperature": 0.4},
    ]
    logits = _logits(8, rows=len(specs))
    together = Sampler(VOCAB).sample(logits.copy(), [_state(output=[7], seed=42, **spec) for spec in specs], None)
    for index, spec in enumerate(specs):
        alone = Sampler(VOCAB).sample(logits[index : index + 1].copy(), [_state(output=[7], seed=42, **spec)], None)
        assert alone.token_ids[0] == together.token_ids[index]
        assert alone.logprobs.get(0) == together.logprobs.get(index)


def test_masked_ids_are_never_chosen_and_an_empty_mask_is_invalid() -> None:
    allowed = [5, 31, 32, 699]
    mask = np.zeros((2, -(-VOCAB // 32)), np.uint32)
    for token in allowed:
        mask[0, token // 32] |= np.uint32(1 << (token % 32))
    states = [_state(constrained=True, seed=1), _state(constrained=True)]
    for step in range(20):
        sampled = Sampler(VOCAB).sample(_logits(step, rows=2), states, mask.view(np.int32))
        assert sampled.token_ids[0] in allowed
        assert sampled.invalid == [1]


@pytest.mark.parametrize("poison", [math.nan, math.inf])
@pytest.mark.parametrize("spec", [{"temperature": 0.0}, {}, {"logprobs": True, "temperature": 0.0}])
def test_a_poisoned_row_is_reported_and_its_neighbours_are_not(poison: float, spec: dict[str, Any]) -> None:
    logits = _logits(4, rows=3)
    clean = Sampler(VOCAB).sample(logits.copy(), [_state(**spec) for _ in range(3)], None)
    logits[1, 400] = poison
    states = [_state(**spec) for _ in range(3)]
    sampled = Sampler(VOCAB).sample(logits, states, None)
    assert sampled.invalid == [1]
    assert states[1].position == 0
    assert sampled.token_ids[[0, 2]].tolist() == clean.token_ids[[0, 2]].tolist()


def test_logprobs_are_untempered_unless_asked() -> None:
    logits = _logits(6)
    raw, tempered = np.log(_softmax(logits[0])), np.log(_softmax(logits[0] / np.float32(0.5)))
    common: dict[str, Any] = {
        "logprobs": True,
        "temperature": 0.5,
        "seed": 3,
        "top_k": 4,
        "top_logprobs": 5,
        "logprob_ids": (0, 10),
        "logit_bias": ((10, 2.0),),
    }
    plain = Sampler(VOCAB).sample(logits.copy(), [_state(**common)], None)
    entry, token = plain.logprobs[0], int(plain.token_ids[0])
    best = np.argsort(-raw)[:5]
    assert entry.top_ids == tuple(best.tolist())
    np.testing.assert_allclose([entry.chosen, *entry.top, *entry.ids], [raw[token], *raw[best], raw[0], raw[10]], atol=1e-5)
    biased = logits.copy()
    biased[0, 10] += 2.0
    tempered = np.log(_softmax(biased[0] / np.float32(0.5)))
    scaled = Sampler(VOCAB).sample(logits.copy(), [_state(**common, scaled_logprobs=True)], None).logprobs[0]
    np.testing.assert_allclose([scaled.chosen, *scaled.ids], [tempered[token], tempered[0], tempered[10]], atol=1e-5)


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    temperature=st.sampled_from([0.0, 1e-9, 1e-6, 1.0000001e-6, 0.01, 2.0, 100.0, 3e38]),
    top_p=st.sampled_from([1e-9, 1e-38, 0.999999, 1.0]),
    top_k=st.sampled_from([-1, 1, VOCAB - 1, VOCAB, VOCAB + 1, 2**31 - 1]),
    min_p=st.sampled_from([0.0, 1e-38, 1.0]),
    repetition=st.sampled_from([1e-38, 1e-6, 1.0, 2.0]),
    bias=st.sampled_from([(), ((5, 100.0),), ((5, -100.0), (6, 100.0), (7, 100.0))]),
    scaled=st.booleans(),
    size=st.sampled_from([1e-30, 1.0, 1e4]),
)
def test_extreme_but_legal_values_choose_a_token(
    seed: int, temperature: float, top_p: float, top_k: int, min_p: float, repetition: float, bias: Any, scaled: bool, size: float
) -> None:
    """No corner of the allowed ranges makes a row invalid, raises a warning, or yields what JSON cannot carry."""
    spec: dict[str, Any] = {"temperature": temperature, "top_p": top_p, "top_k": top_k, "min_p": min_p, "repetition_penalty": repetition}
    spec |= {"logit_bias": bias, "seed": seed, "frequency_penalty": 2.0, "presence_penalty": -2.0}
    spec |= {"logprobs": True, "top_logprobs": 20, "logprob_ids": (0, 5), "scaled_logprobs": scaled}
    logits = _logits(seed) * np.float32(size)
    logits[0, 3] = -np.inf  # as a model that rules an id out
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sampled = Sampler(VOCAB).sample(logits.copy(), [_state([1, 2, 3, 9], [9, 9], **spec)], None)
        again = Sampler(VOCAB).sample(logits.copy(), [_state([1, 2, 3, 9], [9, 9], **spec)], None)
    assert not sampled.invalid
    assert 0 <= sampled.token_ids[0] < VOCAB and sampled.token_ids[0] != 3
    assert sampled.token_ids[0] == again.token_ids[0]
    entry = sampled.logprobs[0]
    assert all(math.isfinite(value) and value <= 1e-5 for value in (entry.chosen, *entry.top, *entry.ids))
    if temperature < 1e-6 or top_k == 1:
        edited = logits[0].copy()
        _state([1, 2, 3, 9], [9, 9], **spec).edit(edited)
        assert edited[sampled.token_ids[0]] == edited.max()


def test_uniforms_are_the_published_generator() -> None:
    """Philox4x32-10 with zero key and counter gives 0x6627e8d5 0xe169c58d first."""
    zero = np.zeros(1, np.uint64)
    bits = (0x6627E8D5 << 32 | 0xE169C58D) >> 11
    assert uniforms(zero, zero, zero, Purpose.SAMPLE)[0] == bits * 2.0**-53


def test_uniforms_differ_by_seed_choice_and_position() -> None:
    grid = np.array(np.meshgrid(range(10), range(10), range(10))).reshape(3, -1).astype(np.uint64)
    numbers = uniforms(grid[0] + np.uint64(2**63), grid[1], grid[2], Purpose.SAMPLE)
    assert len(set(numbers.tolist())) == 1000
    assert 0.45 < numbers.mean() < 0.55
