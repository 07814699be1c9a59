"""Which streams are taken from a worker that lives."""

from __future__ import annotations

from gateway.flight.choice import Choice
from gateway.flight.flight import Flight, Silent
from gateway.flight.spec import GenerateSpec, IdsPrompt
from gateway.resilience.stuck import Running, stuck


def stream(last_token_at: float, *, awaiting: bool = False, interval: int = 1) -> Choice:
    flight = Flight(GenerateSpec("r", "m", IdsPrompt((1,)), stream_interval=interval), Silent())
    (choice,) = flight.choices
    choice.output_ids.append(7)
    choice.last_token_at, choice.awaiting = last_token_at, awaiting
    return choice


def found(*workers: list[Choice], has_waiting: bool = False, heard_from: float = 0.0) -> list[Choice]:
    """At second 100, with a limit of 30."""
    running = [Running(choices, has_waiting) for choices in workers]
    return list(stuck(running, now=100.0, heard_from=heard_from, limit_s=30.0))


async def test_a_stream_without_a_token_while_its_neighbour_or_another_worker_moves() -> None:
    still, moving = stream(60.0), stream(99.9)
    assert found([still, moving]) == [still]
    assert found([still], [moving]) == [still]
    assert found([stream(71.0), moving]) == []


async def test_if_nothing_moves_anywhere_nobody_is_blamed() -> None:
    assert found([stream(60.0), stream(62.0)], [stream(10.0)]) == []
    assert found() == []


async def test_what_this_process_did_not_listen_to_it_has_not_missed() -> None:
    still = stream(60.0)
    assert found([still, stream(99.9)], heard_from=95.0) == []
    assert found([still, stream(99.9)], heard_from=65.0) == [still]


async def test_a_prompt_in_work_is_no_stream_yet() -> None:
    fresh = stream(0.0)
    fresh.output_ids.clear()
    assert found([fresh, stream(0.0, awaiting=True), stream(99.9)]) == []


async def test_who_asked_for_rare_pieces_or_may_wait_for_room_has_longer() -> None:
    rare, moving = stream(60.0, interval=2), stream(99.9)
    assert found([rare, moving]) == []
    assert found([stream(60.0), moving], has_waiting=True) == []
    late = stream(-21.0)
    assert found([late, moving], has_waiting=True, heard_from=-100.0) == [late]
