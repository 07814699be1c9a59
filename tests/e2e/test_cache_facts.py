"""What the prefix cache must report through the whole suite, from the first request on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.cli import main as headrace
from tests.e2e.launched import Suite, launched

ONE = {"temperature": 0, "max_new_tokens": 1}


@pytest.fixture(scope="module")
def suite() -> Iterator[Suite]:
    with launched() as made:
        yield made


def _cached(suite: Suite, ids: list[int]) -> tuple[int, int]:
    """(prompt tokens, of them cached)"""
    meta = suite.generate(input_ids=ids, sampling_params=ONE)["meta_info"]
    return meta["prompt_tokens"], meta["cached_tokens"]


def test_the_first_prompt_shares_two_tokens_with_the_warm_up(suite: Suite) -> None:
    meta = suite.generate(text="The capital of France is", sampling_params={"temperature": 0, "max_new_tokens": 8})["meta_info"]
    assert (meta["prompt_tokens"], meta["cached_tokens"]) == (5, 2)


def test_a_repeated_prompt_computes_one_token(suite: Suite) -> None:
    ids = random.Random(1).choices(range(100, 40_000), k=2_999)
    assert _cached(suite, ids) == (2_999, 0)
    assert _cached(suite, ids) == (2_999, 2_998)


@pytest.mark.parametrize(("layout", "low", "high"), [("start", 0, 8), ("end", 581, 587), ("stable", 599, 599)])
def test_where_an_id_stands_decides_what_is_reused(suite: Suite, layout: str, low: int, high: int) -> None:
    draw = random.Random(layout)
    head, body = draw.choices(range(100, 40_000), k=5), draw.choices(range(100, 40_000), k=580)
    tail = draw.choices(range(100, 40_000), k=5)

    def prompt() -> list[int]:
        unique = draw.choices(range(100, 40_000), k=10)
        if layout == "start":
            return head + unique + body
        return head + body + (unique if layout == "end" else tail + tail)

    first = prompt()
    padded = [*first, *([7] * (600 - len(first)))] if layout == "stable" else first
    second = padded if layout == "stable" else prompt()
    _cached(suite, padded)
    _, cached = _cached(suite, second)
    assert low <= cached <= high


def test_what_is_not_one_namespace_shares_nothing(suite: Suite) -> None:
    """Salt and extra key are told apart even where their texts in a row are equal."""
    ids = random.Random(3).choices(range(100, 40_000), k=60)
    spaces: list[dict[str, str]] = [
        {},
        {"cache_salt": "ab"},
        {"extra_key": "ab"},
        {"cache_salt": "a", "extra_key": "b"},
        {"cache_salt": "ab"},
    ]
    found = [suite.generate(input_ids=ids, sampling_params=ONE, **space)["meta_info"]["cached_tokens"] for space in spaces]
    assert found == [0, 0, 0, 0, 59]


def test_a_flush_forgets_and_is_refused_while_busy(suite: Suite) -> None:
    ids = random.Random(2).choices(range(100, 40_000), k=200)
    _cached(suite, ids)
    suite.wait_idle()
    assert suite.client.post("/flush_cache").status_code == 200
    assert _cached(suite, ids) == (200, 0)
    with ThreadPoolExecutor(1) as beside:
        answer = beside.submit(suite.generate, input_ids=ids, sampling_params={"max_new_tokens": 150, "ignore_eos": True})
        while not suite.loads()["running"]:
            assert not answer.done()
        refused = suite.client.post("/flush_cache")
        assert (refused.status_code, answer.done()) == (400, False)
        assert suite.client.get("/flush_cache", params={"timeout": 60}).status_code == 200, "it waits for the answer"
        assert len(answer.result()["output_ids"]) == 150
    assert _cached(suite, ids) == (200, 0)


@pytest.mark.parametrize(("temperature", "trials"), [("0", "20"), ("0.9", "5")])
def test_a_prompt_has_one_answer_in_any_company(suite: Suite, temperature: str, trials: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What the command shows: alone or in a batch, on a cold or a cached prefix, the most likely token or a drawn one."""
    suite.wait_idle()
    flags = ("--base-url", suite.url, "--temperature", temperature, "--n-trials", trials, "--max-batch", "4", "--max-new-tokens", "4")
    assert headrace(["check", "determinism", *flags]) == 0
    said = capsys.readouterr().out
    assert said.count(f"{trials} trials") == 3 and said.count("  passed") == 3
