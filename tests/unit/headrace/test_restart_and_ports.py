"""When children are started again, and where they listen."""

from __future__ import annotations

import socket
from itertools import count

import pytest

from headrace.launcher.args import check, split
from headrace.launcher.plan import threads_per_worker
from headrace.launcher.ports import Ports, assign, is_free
from headrace.launcher.restart import RestartPolicy
from services.common.config import ConfigError


def test_delays_double_and_the_fifth_death_in_a_minute_ends_it() -> None:
    policy = RestartPolicy()
    assert [policy.on_death(now) for now in (0.0, 1.0, 2.0, 3.0, 4.0)] == [0.25, 0.5, 1.0, 2.0, None]


def test_old_deaths_are_forgotten() -> None:
    policy = RestartPolicy()
    for now in (0.0, 1.0, 2.0, 3.0):
        policy.on_death(now)
    assert policy.on_death(61.5) == 1.0  # the two of the last minute and this one
    assert policy.deaths == 3


def test_the_documented_ports() -> None:
    ports = assign(30000, "127.0.0.1", 2, free=lambda *_: True)
    assert (ports.rest, ports.grpc, ports.rest_metrics) == (30000, 30001, 31000)
    assert (ports.tokenizer, ports.detokenizer) == ((30010, 31010), (30020, 31020))
    assert ports.workers == ((30100, 31100), (30101, 31101))


def test_taken_ports_are_replaced_and_none_is_given_twice() -> None:
    free_ones = count(40000)
    ports = assign(30000, "127.0.0.1", 3, free=lambda _, port: port == 30000, pick=lambda _: next(free_ones) // 2)
    every = [ports.rest, ports.grpc, ports.rest_metrics, *ports.tokenizer, *ports.detokenizer]
    every += [port for pair in ports.workers for port in pair]
    assert len(every) == len(set(every)) == 13


def test_the_rest_port_itself_is_never_replaced() -> None:
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:30000 is in use"):
        assign(30000, "127.0.0.1", 1, free=lambda *_: False)
    with pytest.raises(ConfigError, match="70000 is not a port"):
        assign(70000, "127.0.0.1", 1, free=lambda *_: True)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--tokenizer.port", "30055"], r"--tokenizer\.port: 127\.0\.0\.1:30055 is in use"),
        (["--gateway.grpc-port=30055"], r"--gateway\.grpc-port: 127\.0\.0\.1:30055 is in use"),
        (["--metrics-port", "30055"], r"--scheduler\.metrics-port: 127\.0\.0\.1:30055 is in use"),
        (["--detokenizer.port", "30000"], r"--detokenizer\.port: port 30000 is given to another"),
        (["--detokenizer.port", "80000"], r"--detokenizer\.port: 80000 is not a port"),
        (["--gateway.port", "5000"], r"--gateway\.port: the launcher is told it as --port"),
        (["--workers", "2", "--scheduler.port", "5000"], r"--scheduler\.port: 2 workers cannot share a port"),
    ],
)
def test_a_chosen_port_that_cannot_be_had_is_told_with_its_flag_before_anything_starts(flags: list[str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        _assigned(flags)


def test_chosen_ports_are_what_the_gateway_is_told() -> None:
    ports = _assigned(
        ["--tokenizer.port", "5001", "--detokenizer.metrics-port", "5002", "--scheduler.port", "5003", "--gateway.grpc-port", "5004"]
    )
    assert (ports.tokenizer, ports.detokenizer, ports.workers) == ((5001, 6001), (30020, 5002), ((5003, 6003),))
    assert (ports.grpc, ports.rest_metrics) == (5004, 31000)
    assert _assigned(["--tokenizer.metrics-port", "-2"]).tokenizer == (30010, 31010)


def _assigned(flags: list[str]) -> Ports:
    settings = check(split(flags))
    return assign(
        settings.up.port, settings.up.host, settings.up.workers, chosen=settings.given_ports(), free=lambda _, port: port != 30055
    )


def test_high_base_ports_fall_back_to_free_ones() -> None:
    ports = assign(65500, "127.0.0.1", 1, free=lambda *_: True, pick=lambda _: next(numbers))
    assert max(ports.workers[0]) <= 65535


numbers = count(50000)


def test_a_listening_port_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not is_free("127.0.0.1", server.getsockname()[1])


@pytest.mark.parametrize(("cores", "workers", "threads"), [(2, 1, 2), (2, 2, 1), (2, 4, 1), (16, 3, 5)])
def test_cores_are_divided(cores: int, workers: int, threads: int) -> None:
    assert threads_per_worker(cores, workers) == threads
