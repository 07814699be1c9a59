"""Rows with processors against a plain statement of what they mean, alone and beside others."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from services.scheduler.core.plan import RowStart, SamplingSpec
from services.scheduler.engine.row_state import RowState
from services.scheduler.engine.sampler import Sampled, Sampler
from services.scheduler.logit_processors.registry import load_processors

VOCAB = 96
HERE = "tests.unit.logit_processors.processors"
PROCESSORS = load_processors(True, [f"{name}={HERE}:{name}" for name in ("echo", "breaks", "writes_ids")])
PROMPT = [3, 4, 5]


def _logits(seed: int, rows: int = 1) -> npt.NDArray[np.float32]:
    return (np.random.default_rng(seed).standard_normal((rows, VOCAB)) * 2).astype(np.float32)


def _state(
    name: str = "", output: tuple[int, ...] = (), prompt: list[int] = PROMPT, spec: dict[str, Any] | None = None, **params: Any
) -> RowState:
    sampling = SamplingSpec(processor=(name, json.dumps(params)) if name else None, **(spec or {}))
    start = RowStart(1, sampling, np.array(prompt, np.int32), np.array(output, np.int32))
    return RowState(start, PROCESSORS.of_row(start, VOCAB))


def _sample(logits: npt.NDArray[np.float32], *states: RowState, masks: npt.NDArray[np.int32] | None = None) -> Sampled:
    return Sampler(VOCAB).sample(logits.copy(), list(states), masks)


def _mask(*ids: int) -> npt.NDArray[np.int32]:
    bits = np.zeros(VOCAB, np.uint8)
    bits[list(ids)] = 1
    return np.packbits(bits, bitorder="little").view(np.int32)[None]


def _run(state: RowState, steps: int, seed: int = 0) -> list[int]:
    return [int(_sample(_logits(seed + step), state).token_ids[0]) for step in range(steps)]


GREEDY: dict[str, Any] = {"temperature": 0.0}


def test_the_processor_sees_penalised_logits_and_the_output_so_far() -> None:
    spec = {"temperature": 0.0, "frequency_penalty": 1.5, "logit_bias": ((9, 4.0),)}
    state, output = _state("echo", spec=spec, bias=3.0), list[int]()
    for step in range(40):
        logits = _logits(step)[0].astype(np.float64)
        for token in output:
            logits[token] -= 1.5
        logits[9] += 4.0
        logits[((output or PROMPT)[-1] + 1) % VOCAB] += 3.0
        assert int(_sample(_logits(step), state).token_ids[0]) == int(logits.argmax())
        output.append(int(logits.argmax()))


@pytest.mark.parametrize("spec", [GREEDY, {"seed": 7}, {"seed": 7, "top_p": 0.9, "top_k": 9, "logprobs": True, "top_logprobs": 2}])
def test_a_row_is_the_same_alone_in_company_and_from_its_middle(spec: dict[str, Any]) -> None:
    alone = _run(_state("echo", spec=spec, bias=4.0), 80)
    assert alone != _run(_state(spec=spec), 80)
    middle = _state("echo", tuple(alone[:50]), spec=spec, bias=4.0)
    assert _run(middle, 30, seed=50) == alone[50:]
    rows = [_state(spec=GREEDY), _state("echo", spec=spec, bias=4.0), _state("breaks", at=0), _state("allowed_token_ids", token_ids=[1])]
    for step in range(80):
        sampled = _sample(np.repeat(_logits(step), 4, 0), *rows)
        assert sampled.token_ids[1] == alone[step]
        assert sampled.token_ids[0] == _logits(step).argmax()
        assert sampled.token_ids[3] == 1
        assert list(sampled.failed) == [2]


def test_raw_logprobs_are_the_models_and_scaled_ones_the_processed() -> None:
    spec = {"seed": 1, "logprobs": True, "logprob_ids": (7, 8)}
    plain = _sample(_logits(1), _state(spec=spec)).logprobs[0]
    assert _sample(_logits(1), _state("disallowed_token_ids", token_ids=[7], spec=spec)).logprobs[0].ids == plain.ids
    scaled = _sample(_logits(1), _state("disallowed_token_ids", token_ids=[7], spec=spec | {"scaled_logprobs": True})).logprobs[0]
    assert scaled.ids[0] == -9999.0
    assert scaled.ids[1] > plain.ids[1]


def test_the_grammars_mask_and_the_minimum_length_win() -> None:
    constrained = GREEDY | {"constrained": True}
    infinite = _state("breaks", spec=constrained, at=0, fill="inf")
    assert _sample(_logits(0), infinite, masks=_mask(11, 12)).token_ids[0] in (11, 12)
    both = _state("allowed_token_ids", token_ids=[5, 12], spec=constrained)
    assert _sample(_logits(0), both, masks=_mask(11, 12)).token_ids[0] == 12
    nothing = _state("allowed_token_ids", token_ids=[5], spec=constrained)
    assert _sample(_logits(0), nothing, masks=_mask(11, 12)).failed == {
        0: "custom_logit_processor 'allowed_token_ids' left no token that could follow"
    }
    least = GREEDY | {"min_new_tokens": 3, "suppress_until_min": (2,)}
    assert _run(_state("allowed_token_ids", token_ids=[2, 5], spec=least), 3) == [5, 5, 5]


@pytest.mark.parametrize("params", [{"at": 2}, {"at": 2, "fill": "nan"}, {"at": 2, "fill": "-inf"}])
def test_a_processor_that_fails_fails_its_own_row(params: dict[str, Any]) -> None:
    state, other = _state("breaks", spec=GREEDY, **params), _state(spec=GREEDY)
    for step in range(4):
        sampled = _sample(np.repeat(_logits(step), 2, 0), state, other)
        assert sampled.token_ids[1] == _logits(step).argmax()
        assert sampled.invalid == []
        assert list(sampled.failed) == ([0] if step >= 2 else [])
        assert all("'breaks'" in said and "secret" not in said for said in sampled.failed.values())
    assert other.position == 4
    assert state.position == 2


def test_ids_are_read_only_and_a_models_nan_is_not_the_processors() -> None:
    assert _sample(_logits(0), _state("writes_ids")).failed == {0: "custom_logit_processor 'writes_ids' failed: ValueError"}
    broken = np.full((1, VOCAB), np.nan, np.float32)
    sampled = _sample(broken, _state("echo", bias=1.0))
    assert (sampled.invalid, sampled.failed) == ([0], {})


def _thinking(prompt: list[int] = PROMPT, output: tuple[int, ...] = (), **params: Any) -> RowState:
    banned = {"temperature": 0.0, "logit_bias": tuple((token, -100.0) for token in (90, 91, 92))}
    return _state("thinking_budget", output, prompt, banned, **{"thinking_budget": 4, "end_token_ids": [91, 92], **params})


def test_a_thought_ends_at_its_budget_and_once() -> None:
    found = _run(_thinking(), 20)
    assert found[4:6] == [91, 92]
    assert not {91, 92} & {*found[:4], *found[6:]}
    for size in range(20):
        assert _run(_thinking(output=tuple(found[:size])), 20 - size, seed=size) == found[size:]
    ended = [7, 91, 92, 8]
    assert 91 not in _run(_thinking(output=tuple(ended)), 10)


def test_only_what_the_start_id_opens_is_a_thought() -> None:
    assert 91 not in _run(_thinking(start_token_id=90), 12)
    assert _run(_thinking([90, 5], start_token_id=90), 6)[4:] == [91, 92]
    assert 91 not in _run(_thinking([90, 5, 91, 92], start_token_id=90), 12)
    assert _run(_thinking(output=(8, 90), start_token_id=90), 6)[4:] == [91, 92]
