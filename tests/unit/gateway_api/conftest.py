"""A running gateway with fakes around it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.fakes.stack import Stack, running


@pytest.fixture
async def stack() -> AsyncIterator[Stack]:
    """One worker, default settings."""
    async with running() as started:
        yield started
