"""When requests are sent."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from headrace.bench.record import BenchRequest


def schedule(requests: Sequence[BenchRequest], rate: float, burstiness: float, seed: int) -> list[float]:
    """Seconds after the start for each request.

    A request's own time wins. Else gaps are drawn with mean 1 / rate: a burstiness of 1 is a Poisson process, less is
    burstier, more is steadier. An infinite rate sends all at once, so that only the concurrency cap holds them back.
    """
    draw = random.Random(f"arrivals {seed}")
    now, times = 0.0, []
    for request in requests:
        if request.at_s is not None:
            times.append(request.at_s)
            continue
        times.append(now)
        if math.isfinite(rate):
            now += draw.gammavariate(burstiness, 1.0 / (rate * burstiness))
    return times
