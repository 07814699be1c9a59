"""What an operator writes: a factory, and the processor it makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

FloatRow = npt.NDArray[np.float32]  # [vocab] logits of one row
IntArray = npt.NDArray[np.int32]

LARGEST_LOGIT = np.float32(1e30)  # of one that was edited: beyond what models say, and far enough from overflow

Processor = Callable[[FloatRow, IntArray, IntArray], None]
"""Called once before each sampled token of one choice, with its logits, its prompt ids [P] and its output ids so far [N].

It changes the logits in place; -inf forbids an id, what is above 1e30 counts as 1e30. The ids are read-only. It must depend
on these three alone: after a retraction, or on another worker, a new one is made and goes on in the middle of the output.
It runs in the engine's thread, so its time is added to every step of the batch. An exception ends the choice.
"""

Factory = Callable[[Mapping[str, Any], int], Processor]
"""Makes the processor of one choice from the request's `custom_params` and the size of the vocabulary.

It is also called when a request arrives: an exception is then the client's 400 about `custom_params`.
"""
