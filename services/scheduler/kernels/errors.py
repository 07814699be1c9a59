"""What the kernel package raises when it cannot serve."""

from __future__ import annotations


class KernelsUnavailable(RuntimeError):
    """The native kernels cannot be built or loaded here; callers fall back to plain PyTorch and say so."""


class UnsupportedShape(ValueError):
    """The model's dimensions do not fit the native kernels; the message names the dimension."""
