"""How long the steps of a device take, for runs in simulated time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from services.scheduler.core.plan import StepPlan


@dataclass(frozen=True, slots=True)
class Device:
    """What a step costs: as measured on two cores with the embedded model in int8."""

    prefill_ms_per_token: float = 0.65
    decode_ms: float = 5.0
    decode_ms_per_row: float = 1.4

    def step_ms(self, plan: StepPlan) -> float:
        """Milliseconds of the step."""
        rows = int(np.count_nonzero(plan.extend_lens == 1))
        tokens = int(plan.extend_lens.sum()) - rows
        return self.prefill_ms_per_token * tokens + (self.decode_ms + self.decode_ms_per_row * rows if rows else 0.0)
