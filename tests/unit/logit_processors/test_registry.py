"""Which names a request may give, and what comes back for the others."""

from __future__ import annotations

import pytest

from services.common.config import ConfigError, load
from services.common.errors import InvalidRequest
from services.scheduler.config import SchedulerConfig
from services.scheduler.logit_processors.registry import load_processors

HERE = "tests.unit.logit_processors.processors"
NAME, PARAMS = "sampling.custom_logit_processor", "sampling.custom_params"


def test_off_by_default_and_then_refused() -> None:
    config, _ = load(SchedulerConfig, [], prog="test")
    off = load_processors(config.enable_custom_logit_processor, config.logit_processors)
    assert off.check("", "", 100) is None
    with pytest.raises(InvalidRequest, match="--enable-custom-logit-processor") as caught:
        off.check("allowed_token_ids", "{}", 100)
    assert caught.value.field == NAME


def test_an_unknown_name_is_told_the_known_ones() -> None:
    flags = ["--enable-custom-logit-processor", "--logit-processors", f"mine={HERE}:echo", f"other.one={HERE}:breaks"]
    config, _ = load(SchedulerConfig, flags, prog="test")
    on = load_processors(config.enable_custom_logit_processor, config.logit_processors)
    with pytest.raises(InvalidRequest, match=r"allowed_token_ids, disallowed_token_ids, mine, other\.one, thinking_budget are") as caught:
        on.check("yours", "", 100)
    assert caught.value.field == NAME
    assert on.check("mine", '{"bias": 2}', 100) == ("mine", '{"bias": 2}')


@pytest.mark.parametrize(
    ("name", "params", "said"),
    [
        ("mine", "", "KeyError: 'bias'"),
        ("mine", '{"bias": "x"}', "could not convert"),
        ("mine", "{", "Expecting property name"),
        ("mine", "[1]", "must be a JSON object"),
        ("mine", '{"a": "' + "x" * 17000 + '"}', "16384 bytes"),
        ("mine", "[" * 16000, "nested too deeply|must be a JSON object|Expecting value"),
        ("allowed_token_ids", "{}", "token_ids must be an array of ids below 100"),
        ("allowed_token_ids", '{"token_ids": [100]}', "ids below 100"),
        ("disallowed_token_ids", '{"token_ids": [true]}', "ids below 100"),
        ("disallowed_token_ids", '{"token_ids": [1], "ids": [2]}', "'ids' is unknown"),
        ("thinking_budget", '{"end_token_ids": [1]}', "thinking_budget must be a whole number"),
        ("thinking_budget", '{"thinking_budget": 1}', "end_token_ids must be"),
        ("thinking_budget", '{"thinking_budget": 1, "end_token_ids": [1], "start_token_id": 100}', "start_token_id must be"),
        ("", '{"bias": 2}', "give sampling.custom_logit_processor"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(name: str, params: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said) as caught:
        load_processors(True, [f"mine={HERE}:echo"]).check(name, params, 100)
    assert caught.value.field == PARAMS


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("mine", "not of the form"),
        (f"mine={HERE}", "not of the form"),
        (f"mine={HERE}:nothing", "AttributeError"),
        ("mine=no.such:thing", "ModuleNotFoundError"),
        (f"mine={HERE}:NOT_CALLABLE", "cannot be called"),
        (f"thinking_budget={HERE}:echo", "is there already"),
    ],
)
def test_a_registration_that_cannot_be_used_ends_the_start(entry: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"--logit-processors: .*{said}"):
        load_processors(True, [entry])
    with pytest.raises(ConfigError, match="--enable-custom-logit-processor is off"):
        load_processors(False, [entry])
