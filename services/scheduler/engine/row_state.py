"""What the sampler remembers of one running choice, updated token by token."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from services.scheduler.core.plan import RowStart, SamplingSpec
from services.scheduler.logit_processors.interface import LARGEST_LOGIT, FloatRow
from services.scheduler.logit_processors.row import RowProcessor

_GREEDY_BELOW = 1e-6


class _IdSet:
    """Distinct token ids with a count each, as arrays that grow in place."""

    def __init__(self) -> None:
        self._index: dict[int, int] = {}
        self._ids = np.zeros(64, np.int64)
        self._counts = np.zeros(64, np.float32)

    def add(self, token: int, count: int = 1) -> None:
        at = self._index.setdefault(token, len(self._index))
        if at == self._ids.size:
            self._ids, self._counts = np.resize(self._ids, 2 * at), np.resize(self._counts, 2 * at)
            self._counts[at:] = 0.0
        self._ids[at] = token
        self._counts[at] += count

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        return self._ids[: len(self._index)]

    @property
    def counts(self) -> npt.NDArray[np.float32]:
        return self._counts[: len(self._index)]


class RowState:
    """Sampling parameters of a row, the position of its next token, and the counts its penalties need."""

    def __init__(self, start: RowStart, processor: RowProcessor | None = None) -> None:
        spec = start.sampling
        self.spec: SamplingSpec = spec
        self.processor = processor
        self.position = len(start.output_ids)  # output position of the next token
        self.greedy = spec.temperature < _GREEDY_BELOW or spec.top_k == 1
        self.scale = 1.0 if spec.temperature < _GREEDY_BELOW else 1.0 / spec.temperature
        self._additive = spec.frequency_penalty != 0.0 or spec.presence_penalty != 0.0
        self._repetition = spec.repetition_penalty != 1.0
        self._bias_ids = np.array([token for token, _ in spec.logit_bias], np.int64)
        self._biases = np.array([bias for _, bias in spec.logit_bias], np.float32)
        self._suppressed = np.array(spec.suppress_until_min, np.int64)
        self._outputs, self._seen = _IdSet(), _IdSet()
        if self._repetition:
            for token in np.unique(start.prompt_ids).tolist():
                self._seen.add(token)
        self.wants_logprobs = spec.logprobs
        self.last_prompt_logits: FloatRow | None = None  # of the previous chunk's last token, for prompt logprobs
        for token in np.asarray(start.output_ids).tolist():
            self._count(token)

    @property
    def edits_logits(self) -> bool:
        """Whether `edit` would change the next logits."""
        suppressing = self._suppressed.size > 0 and self.position < self.spec.min_new_tokens
        return self._additive or self._repetition or self._biases.size > 0 or suppressing or self.processor is not None

    def edit(self, logits: FloatRow) -> None:
        """Apply repetition, frequency and presence penalties, logit bias, the processor and the minimum length, in this order, in place.

        Raises ProcessorFailed.
        """
        spec = self.spec
        if self._repetition and self._seen.ids.size:
            values, factor = logits[self._seen.ids], np.float32(spec.repetition_penalty)
            with np.errstate(over="ignore"):  # a tiny factor is a legal wish
                logits[self._seen.ids] = np.minimum(np.where(values > 0, values / factor, values * factor), LARGEST_LOGIT)
        if self._additive and self._outputs.ids.size:
            penalty = self._outputs.counts * np.float32(spec.frequency_penalty) + np.float32(spec.presence_penalty)
            logits[self._outputs.ids] -= penalty
        if self._biases.size:
            logits[self._bias_ids] += self._biases
        if self.processor is not None:
            self.processor.apply(logits)
        if self._suppressed.size and self.position < spec.min_new_tokens:
            logits[self._suppressed] = -np.inf

    def accept(self, token: int) -> None:
        """Note the token sampled at the current position."""
        self.position += 1
        self._count(token)
        if self.processor is not None:
            self.processor.accept(token)

    def _count(self, token: int) -> None:
        if self._additive:
            self._outputs.add(token)
        if self._repetition:
            self._seen.add(token)
