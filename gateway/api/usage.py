"""Token counts as the doors report them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.flight.flight import Flight


def usage_of(flights: Sequence[Flight], reasoning_tokens: int = 0) -> dict[str, Any]:
    """The OpenAI usage object: each prompt once, however many choices it has."""
    prompt = sum(len(flight.prompt_ids) for flight in flights)
    completion = sum(len(choice.output_ids) for flight in flights for choice in flight.choices)
    cached = sum(cached_tokens(flight) for flight in flights)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoning_tokens},
        "reasoning_tokens": reasoning_tokens,
    }


def cached_tokens(flight: Flight) -> int:
    """Prompt tokens the first worker found in its cache."""
    cached = flight.choices[0].cached
    return 0 if cached is None else min(cached.total, len(flight.prompt_ids))
