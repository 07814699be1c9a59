"""Which models can be asked for, and what limits they set."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.workers.registry import Registry
from gateway.workers.worker import WorkerInfo
from services.common.errors import NotFound, Unavailable


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """Tokens one request may have in all, and ids below which are tokens. 0: not known."""

    room: int
    vocab_size: int
    bound_by: str


class ModelCatalog:
    """Names of models from the workers; a model is remembered while its workers start again."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._known: dict[str, WorkerInfo] = {}

    def names(self) -> list[str]:
        """Models served now or lately, in order of appearance."""
        self._learn()
        return list(self._known)

    def info(self, model: str) -> WorkerInfo | None:
        """What a worker of the model has told last."""
        self._learn()
        return self._known.get(model)

    def tokenizer_digest(self, model: str) -> str:
        """Of the vocabulary the model's workers have; empty if that is not known. An empty name is the first model."""
        names = self.names()
        info = self._known.get(model or (names[0] if names else ""))
        return info.identity.tokenizer_digest if info is not None else ""

    def is_ready(self, model: str) -> bool:
        """Can a request for it start now?"""
        return bool(self._registry.ready(model))

    def resolve(self, name: str) -> str:
        """The model meant by a name; an empty name is the first model. Raises NotFound, or Unavailable while none is known."""
        if name in self._known:
            return name
        names = self.names()
        if not names:
            raise Unavailable("no worker has been reached yet", code="no_worker")
        if not name:
            return names[0]
        if name not in names:
            raise NotFound(f"the model {name!r} does not exist; served: {', '.join(names)}", field="model", code="model_not_found")
        return name

    def limits(self, model: str) -> ModelLimits:
        """The model's limits, the smaller of context and KV pool."""
        info = self.info(model)
        if info is None:
            return ModelLimits(0, 0, "context")
        if 0 < info.pool_tokens < info.context_tokens:
            return ModelLimits(info.pool_tokens, info.vocab_size, "KV pool")
        return ModelLimits(info.context_tokens, info.vocab_size, "context length")

    def _learn(self) -> None:
        """A model is forgotten when its last worker serves another one or has left, and no newcomer may turn out to serve it."""
        workers = self._registry.workers()
        for worker in workers:
            if worker.info is not None:
                self._known[worker.info.identity.model] = worker.info
        served = {worker.model for worker in workers}
        if served and None not in served:
            for model in self._known.keys() - served:
                del self._known[model]
