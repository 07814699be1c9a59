"""Prompts made of random token ids, whose lengths are exact."""

from __future__ import annotations

import random

from headrace.bench.config import Workload
from headrace.bench.record import BenchRequest

_WORDS = ("water", "wheel", "mill", "stone", "river", "gate", "grain", "flour", "bank", "bridge", "quiet", "steady", "slow", "green")


def uniform(config: Workload) -> list[BenchRequest]:
    """Independent prompts; lengths uniform between the ratio's share of the longest, and the longest."""
    draw = random.Random(f"random {config.seed}")
    requests = []
    for _ in range(config.num_prompts):
        length = _length(draw, config.random_input_len, config.random_range_ratio)
        output = _length(draw, config.random_output_len, config.random_range_ratio)
        requests.append(BenchRequest(prompt_ids=_ids(draw, length, config), output_len=output))
    return requests


def shared_prefix(config: Workload) -> list[BenchRequest]:
    """Groups of prompts that begin alike; shuffled unless ordered."""
    draw = random.Random(f"shared-prefix {config.seed}")
    requests = []
    for _ in range(config.gsp_num_groups):
        prefix = _ids(draw, config.gsp_system_prompt_len, config)
        for _ in range(config.gsp_prompts_per_group):
            own = _ids(draw, _length(draw, config.gsp_question_len, config.gsp_range_ratio), config)
            output = _length(draw, config.gsp_output_len, config.gsp_range_ratio)
            requests.append(BenchRequest(prompt_ids=prefix + own, output_len=output))
    if not config.gsp_ordered:
        draw.shuffle(requests)
    return requests


def conversations(config: Workload) -> list[BenchRequest]:
    """Users who wait for an answer before they go on; a request holds only what its turn adds."""
    draw = random.Random(f"conversations {config.seed}")
    people = max(1, config.num_prompts // config.turns)
    texts = [[" ".join(draw.choices(_WORDS, k=config.turn_input_len)) for _ in range(config.turns)] for _ in range(people)]
    return [
        BenchRequest(text=texts[person][turn], output_len=config.random_output_len, conversation=person)
        for turn in range(config.turns)
        for person in range(people)
    ]


def _length(draw: random.Random, longest: int, ratio: float) -> int:
    return draw.randint(max(1, int(longest * ratio)), longest)


def _ids(draw: random.Random, length: int, config: Workload) -> tuple[int, ...]:
    low, high = (int(part) for part in config.random_id_range.split(":"))
    return tuple(draw.randrange(low, high) for _ in range(length))
