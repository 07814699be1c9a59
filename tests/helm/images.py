"""Proves the images without a container engine: `python -m tests.helm.images [NAME …]`, by default all four.

Each Dockerfile's build steps run here, into a folder of their own; the size of what they install is measured; then the
program starts from it by the image's entry point, with a read-only root, a scratch /tmp and no other environment, until
its probes answer and a signal ends it. `--engine buildah` builds the real images too, where the base image can be had.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.helm.dockerfile import FILES, ROOT, Stage, stages
from tests.helm.scripted import write_model
from tests.ports import free_port

LIMIT_MB = 250
SERVICES = {
    "tokenizer": "headrace.tokenizer.v1.Tokenizer",
    "detokenizer": "headrace.detokenizer.v1.Detokenizer",
    "scheduler": "headrace.scheduler.v1.Scheduler",
}
_LIGHT = ("gateway", "tokenizer", "detokenizer")
_START_S = 120.0
# A mount namespace of its own: everything read-only, /tmp empty, as the chart's pods have it.
_READ_ONLY = 'mount -t tmpfs tmpfs /tmp; mount -o remount,bind,ro /; ! touch "$PWD/probe" 2>/dev/null; exec "$@"'


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


def _settings(name: str, home: Path) -> Path:
    """A configuration that starts the program without anything else: a small tokenizer, a script for a model, no workers."""
    overrides = write_model(home / "model")
    own = overrides["worker" if name == "scheduler" else name]
    ports = {"grpc_port": free_port()} if name == "gateway" else {}
    file = home / "config.yaml"
    file.write_text(yaml.safe_dump({"host": "127.0.0.1", "port": free_port(), "metrics_port": free_port(), **ports, **own}))
    return file


def _separate() -> list[str]:
    return ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]


def _environment(installed: Path) -> dict[str, str]:
    return {"PATH": f"{installed}/bin:/usr/bin:/bin", "HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}


@contextmanager
def started(installed: Path, command: Sequence[str], config: Path) -> Iterator[subprocess.Popen[str]]:
    """The program in its read-only world, with what the image sets of an environment and nothing else."""
    words = [*_separate(), "sh", "-euc", _READ_ONLY, "sh", *command, "--config", str(config)]
    with subprocess.Popen(words, cwd=installed, env=_environment(installed), stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def healthy(name: str, installed: Path, config: Path) -> bool:
    """What the kubelet would ask: the named service; of a gateway, which has no workers here, the process."""
    if name == "gateway":
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{yaml.safe_load(config.read_text())['port']}/health", timeout=5) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False
    words = [f"{installed}/bin/python", "-m", "services.common.probe", "--config", str(config), "--service", SERVICES[name]]
    return subprocess.run(words, cwd=installed, env={"PATH": "/usr/bin"}, capture_output=True, check=False).returncode == 0


def run(name: str, installed: Path, home: Path) -> list[str]:
    """Start, ask, stop; returns what went wrong."""
    command, config = stages(FILES[name])[-1].exec_form("ENTRYPOINT"), _settings(name, home)
    with started(installed, command, config) as process:
        end = time.monotonic() + _START_S
        while not healthy(name, installed, config):
            if process.poll() is not None or time.monotonic() > end:
                process.kill()
                return [f"not healthy: {(process.stderr.read() if process.stderr else '').strip()[-300:]}"]
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)
    return [f"exit code {code}"] if code else []


def fetches(installed: Path) -> list[str]:
    """What the chart's fetch container does before a program starts: find, fetch and convert the embedded model."""
    command = ["python", "-m", "headrace", "model", "path", "smollm2-135m-instruct"]
    words = [*_separate(), "sh", "-euc", _READ_ONLY, "sh", *command]
    environment = {**_environment(installed), "HEADRACE_CACHE_DIR": "/tmp/cache", **_index_settings()}
    done = subprocess.run(words, cwd=installed, env=environment, capture_output=True, text=True, check=False)
    return [] if done.returncode == 0 else [f"cannot fetch: {done.stderr.strip()[-300:]}"]


def _index_settings() -> dict[str, str]:
    """How this machine reaches its package index."""
    return {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name in ("SSL_CERT_FILE", "HTTPS_PROXY")}


def check(name: str) -> list[str]:
    """Build one image's environment and run it; returns what is wrong with it."""
    light = name in _LIGHT
    with tempfile.TemporaryDirectory(prefix=f"headrace-{name}-", dir="/var/tmp") as scratch:
        installed = build(stages(FILES[name])[0], Path(scratch))
        size = megabytes(installed)
        wrong = [f"{size:.0f} MB is more than {LIMIT_MB}"] if light and size > LIMIT_MB else []
        wrong += [f"{folder.name} is installed" for folder in installed.glob("lib/*/site-packages/torch") if light]
        wrong += run(name, installed, Path(scratch))
        wrong += [] if light else fetches(installed)
    print(f"{name:12} {size:6.0f} MB  {'; '.join(wrong) or 'healthy with a read-only root, ends with 0'}", flush=True)
    return wrong


def engine_build(name: str) -> list[str]:
    """Build the real image with buildah, without a daemon."""
    file = FILES[name].relative_to(ROOT)
    words = ["buildah", "bud", "--isolation", "chroot", "--layers=false", "--file", str(file), "--tag", f"localhost/headrace-{name}", "."]
    done = subprocess.run(words, cwd=ROOT, stdout=sys.stderr, check=False)
    print(f"{name:12} {'built' if done.returncode == 0 else 'not built'} by buildah", flush=True)
    return [] if done.returncode == 0 else ["buildah failed"]


def main(argv: Sequence[str]) -> int:
    """Exit code 1 if an image is not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.helm.images", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*FILES, []], help="images to check; all by default")
    parser.add_argument("--engine", choices=["none", "buildah"], default="none", help="build the images themselves, too")
    given = parser.parse_args(argv)
    complaints = []
    for name in given.names or FILES:
        complaints += check(name)
        if given.engine == "buildah":
            complaints += engine_build(name)
    return int(bool(complaints))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
