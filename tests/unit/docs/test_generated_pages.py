"""The generated pages are what the code says now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("script", ["generate.py", "dashboards.py"])
def test_up_to_date(script: str) -> None:
    done = subprocess.run([sys.executable, str(DOCS / script), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
