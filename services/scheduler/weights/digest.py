"""A quick fingerprint of a checkpoint: two workers with the same digest may continue each other's requests."""

from __future__ import annotations

import hashlib
from dataclasses import asdict

from services.scheduler.weights.interface import Checkpoint


def model_digest(checkpoint: Checkpoint) -> str:
    """Hex SHA-256 (first 32 digits) over configuration, tensor names, shapes and a few bytes of every tensor."""
    digest = hashlib.sha256(repr(sorted(asdict(checkpoint.config).items())).encode())
    for name in checkpoint.names():
        digest.update(f"{name}{checkpoint.shape(name)}".encode())
        digest.update(checkpoint.sample(name))
    return digest.hexdigest()[:32]
