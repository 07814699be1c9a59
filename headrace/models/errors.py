"""What can go wrong between a model's name and a folder that can be served."""

from __future__ import annotations


class ModelError(Exception):
    """A model cannot be found, fetched or converted. The message says which, why, and what to do."""
