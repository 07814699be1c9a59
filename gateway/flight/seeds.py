"""Seeds of choices: chosen once, so that a request resumed elsewhere draws the same numbers."""

from __future__ import annotations

import secrets

_MASK = (1 << 64) - 1


def choice_seed(seed: int | None, index: int) -> int:
    """The unsigned 64 bit seed of choice `index`: the request's own for the first, mixed for the others."""
    base = secrets.randbits(64) if seed is None else seed & _MASK
    if index == 0:
        return base
    mixed = (base + index * 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return mixed ^ (mixed >> 31)
