"""Runs the build steps of the images here, each in a folder of its own, and looks at what they install.

`python tests/helm/images.py [NAME …]`: by default the images without torch. Prints the installed size and starts each
entry point once with --help.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.helm.dockerfile import FILES, ROOT, Stage, stages

LIMIT_MB = 250
_LIGHT = ("gateway", "tokenizer", "detokenizer")


def build(stage: Stage, home: Path) -> Path:
    """Run a build stage with /src and /opt under `home`; returns the environment it made."""
    source, installed = home / "src", home / "opt/headrace"
    source.mkdir()
    installed.parent.mkdir()
    for word, rest in stage.steps:
        if word == "COPY":
            *names, target = rest.split()
            for name in names:
                _copy(ROOT / name, source / (name if target == "./" else target))
        elif word == "RUN":
            environment = {**os.environ, **dict(arg.split("=", 1) for arg in stage.all("ARG"))}
            command = re.sub(r"(?<![\w.])/opt/headrace", str(installed), rest).replace("python -m venv", f"{sys.executable} -m venv")
            command = command.replace('--index-url "$TORCH_INDEX"', "")  # this machine's index has the same wheels
            subprocess.run(["bash", "-euc", command], cwd=source, env=environment, check=True, stdout=sys.stderr)
    return installed


def _copy(origin: Path, target: Path) -> None:
    if origin.is_dir():
        shutil.copytree(origin, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    else:
        shutil.copy(origin, target)


def megabytes(folder: Path) -> float:
    """Size of all files below."""
    return sum(p.lstat().st_size for p in folder.rglob("*") if not p.is_dir()) / 1e6


def check(name: str) -> list[str]:
    """Build one image's environment; returns what is wrong with it."""
    first, final = stages(FILES[name])
    with tempfile.TemporaryDirectory(prefix=f"headrace-{name}-") as scratch:
        installed = build(first, Path(scratch))
        size = megabytes(installed)
        light = name in _LIGHT
        wrong = [f"{size:.0f} MB is more than {LIMIT_MB}"] if light and size > LIMIT_MB else []
        wrong += [f"{folder.name} is installed" for folder in installed.glob("lib/*/site-packages/torch") if light]
        environment = {"PATH": f"{installed}/bin:/usr/bin:/bin", "HOME": scratch, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [*final.exec_form("ENTRYPOINT"), "--help"]
        done = subprocess.run(command, cwd=scratch, env=environment, capture_output=True, text=True, check=False)
        wrong += [done.stderr.strip().splitlines()[-1]] if done.returncode else []
        print(f"{name:12} {size:6.0f} MB  {'; '.join(wrong) or 'ok'}", flush=True)
    return wrong


if __name__ == "__main__":
    complaints = [check(name) for name in sys.argv[1:] or _LIGHT]
    raise SystemExit(int(any(complaints)))
