"""What a caller tells the registry when it asks for a worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gateway.workers.worker import ModelIdentity
from services.common.prefix_hash import block_hashes, root_hash


class PromptKey:
    """Token ids and their cache namespace; hashes are computed on first use, once per model digest."""

    __slots__ = ("_adapter", "_extra", "_hashes", "_salt", "token_ids")

    def __init__(self, token_ids: Sequence[int], *, adapter_digest: bytes = b"", cache_salt: bytes = b"", extra_key: str = "") -> None:
        self.token_ids = token_ids
        self._adapter = adapter_digest
        self._salt = cache_salt
        self._extra = extra_key
        self._hashes: dict[tuple[str, int], list[int]] = {}

    def blocks(self, model_digest: str, block_size: int) -> list[int]:
        """Chained hashes of the complete blocks, as the workers that serve `model_digest` name them."""
        key = (model_digest, block_size)
        if key not in self._hashes:
            root = root_hash(model_digest, self._adapter, self._salt, self._extra)
            self._hashes[key] = block_hashes(root, self.token_ids, block_size)
        return self._hashes[key]

    def extended(self, output_ids: Sequence[int]) -> PromptKey:
        """The same namespace with output appended: what a resumed request has to compute."""
        return PromptKey([*self.token_ids, *output_ids], adapter_digest=self._adapter, cache_salt=self._salt, extra_key=self._extra)


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """Asks for one worker for one attempt of one request.

    excluded: workers this request has already tried; they are chosen only where no other is left.
    identity: set when the request goes on from output of a former worker: only the same model may continue it.
    worker_id: the client wants this very worker.
    """

    model: str
    prompt: PromptKey
    max_new_tokens: int = 0
    routing_key: str = ""
    tenant: str = ""
    priority: int = 0
    excluded: frozenset[str] = field(default=frozenset())
    identity: ModelIdentity | None = None
    worker_id: str | None = None

    def excluding(self, worker_ids: frozenset[str]) -> LeaseRequest:
        return replace(self, excluded=self.excluded | worker_ids) if worker_ids else self
