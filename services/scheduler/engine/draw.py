"""Random numbers that depend on what is drawn, never on when or beside whom: a counter-based generator."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

_MULTIPLIERS = np.array([0xD2511F53, 0xCD9E8D57], np.uint64)
_KEY_STEPS = np.array([0x9E3779B9, 0xBB67AE85], np.uint64)
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_ROUNDS = 10


class Purpose(IntEnum):
    """What a number is for; draws for different purposes at the same position are independent."""

    SAMPLE = 0


def uniforms(
    seeds: npt.NDArray[np.uint64],
    choices: npt.NDArray[np.uint64],
    positions: npt.NDArray[np.uint64],
    purpose: Purpose,
) -> npt.NDArray[np.float64]:
    """One number in [0, 1) per row, 53 bits, by Philox4x32-10 with the seed as key.

    Arrays are [S]; choices and positions below 2**32.
    """
    counter = np.stack((positions & _LOW, choices & _LOW, np.full_like(positions, int(purpose)), positions >> _SHIFT))
    key = np.stack((seeds & _LOW, seeds >> _SHIFT))
    for _ in range(_ROUNDS):
        products = counter[[0, 2]] * _MULTIPLIERS[:, None]
        high, low = products >> _SHIFT, products & _LOW
        counter = np.stack((high[1] ^ counter[1] ^ key[0], low[1], high[0] ^ counter[3] ^ key[1], low[0]))
        key = (key + _KEY_STEPS[:, None]) & _LOW
    mantissa = ((counter[0] << _SHIFT) | counter[1]) >> np.uint64(11)
    numbers: npt.NDArray[np.float64] = mantissa.astype(np.float64) * 2.0**-53
    return numbers
