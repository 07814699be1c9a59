"""The kernel library, built once into the real cache folder, and every instruction set this machine executes."""

from __future__ import annotations

import pytest

from services.common.config import cache_dir
from services.scheduler.kernels import dispatch


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "isa" in metafunc.fixturenames:
        dispatch.load(cache_dir())
        metafunc.parametrize("isa", dispatch.isas())


@pytest.fixture(scope="session", autouse=True)
def kernels() -> None:
    dispatch.load(cache_dir())
