"""When children are started again, and where they listen."""

from __future__ import annotations

import socket
from itertools import count

import pytest

from headrace.launcher.plan import threads_per_worker
from headrace.launcher.ports import assign, is_free
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
