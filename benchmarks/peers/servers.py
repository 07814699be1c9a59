"""Starts, pauses and weighs a server under test, ours or a peer's, with all its processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.peers.install import llama_binaries
from headrace.bench.config import BenchConfig
from headrace.launcher.http import call

_START_TIMEOUT_S = 600.0
_STOP_TIMEOUT_S = 60.0
_PAUSE_TIMEOUT_S = 5.0
MODEL_NAME = "smollm2"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to start a server. `fields` are bench flags that speak to it."""

    name: str
    command: tuple[str, ...]
    port: int
    version: str
    environment: Mapping[str, str] = field(default_factory=dict)


class Server:
    """A running server. `stop` must be called."""

    def __init__(self, recipe: Recipe, log: Path) -> None:
        self.recipe = recipe
        self._log = log
        self._begin = time.monotonic()
        with log.open("ab") as out:
            environment = {**os.environ, **recipe.environment}
            self._process = subprocess.Popen(recipe.command, stdout=out, stderr=out, env=environment, start_new_session=True)
        self.first_answer_s = 0.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.recipe.port}"

    def wait(self) -> None:
        """Until it has answered a request; sets `first_answer_s`. Raises RuntimeError if it does not."""
        body = {"model": MODEL_NAME, "prompt": "Hello", "max_tokens": 1, "temperature": 0}
        while time.monotonic() - self._begin < _START_TIMEOUT_S:
            if call("127.0.0.1", self.recipe.port, "POST", "/v1/completions", body, timeout_s=60).status == 200:
                self.first_answer_s = time.monotonic() - self._begin
                return
            if self._process.poll() is not None:
                break
            time.sleep(0.1)
        self.stop()
        raise RuntimeError(f"{self.recipe.name} did not start; see {self._log}")

    def processes(self) -> list[psutil.Process]:
        """The whole tree."""
        root = psutil.Process(self._process.pid)
        return [root, *root.children(recursive=True)]

    def pause(self) -> None:
        """Stop it from using the cores while another is measured; returns once every process stands still."""
        self._signal(signal.SIGSTOP)
        end = time.monotonic() + _PAUSE_TIMEOUT_S
        while any(_runs(process) for process in self.processes()) and time.monotonic() < end:
            time.sleep(0.01)

    def resume(self) -> None:
        """Let it run again."""
        self._signal(signal.SIGCONT)

    def pss_bytes(self) -> int:
        """Memory of the tree, shared pages divided among those who share them."""
        return sum(int(process.memory_full_info().pss) for process in self.processes())

    def bench(self, **fields: object) -> BenchConfig:
        """Flags of a run against this server."""
        return BenchConfig(backend="openai", base_url=self.url, model=MODEL_NAME, server_version=self.recipe.version, **fields)  # type: ignore[arg-type]

    def stop(self) -> None:
        """End it and everything it started."""
        if self._process.poll() is not None:
            return
        self.resume()
        tree = self.processes()
        self._process.send_signal(signal.SIGTERM)
        _, alive = psutil.wait_procs(tree, timeout=_STOP_TIMEOUT_S)
        for process in alive:
            process.kill()
        self._process.wait()

    def _signal(self, number: int) -> None:
        for process in self.processes():
            try:
                process.send_signal(number)
            except psutil.NoSuchProcess:
                continue


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def headrace(name: str, model: Path, port: int, *flags: str) -> Recipe:
    """Our whole suite: four processes and the launcher."""
    start = (sys.executable, "-m", "headrace", "up", "--model", str(model), "--port", str(port))
    return Recipe(name, (*start, "--served-model-name", MODEL_NAME, *flags), port, "headrace")


def vllm(environment: Path, model: Path, port: int, kv_gib: int = 2) -> Recipe:
    """vLLM's CPU build in bfloat16, bound to all cores."""
    cores = sorted(os.sched_getaffinity(0))
    settings = {
        "VLLM_CPU_KVCACHE_SPACE": str(kv_gib),
        "VLLM_CPU_OMP_THREADS_BIND": f"{cores[0]}-{cores[-1]}",
        "HF_HUB_OFFLINE": "1",
    }
    program = str(environment / "bin" / "vllm")
    command = (program, "serve", str(model), "--port", str(port), "--dtype", "bfloat16", "--max-model-len", "4096")
    return Recipe("vLLM", (*command, "--served-model-name", MODEL_NAME), port, "vLLM 0.32.0 CPU bf16", settings)


def llama_cpp(environment: Path, gguf: Path, port: int) -> Recipe:
    """llama.cpp's server with 32 slots on a GGUF file."""
    binaries = llama_binaries(environment)
    cores = str(len(os.sched_getaffinity(0)))
    command = (str(binaries / "llama-server"), "-m", str(gguf), "--port", str(port), "-c", "40960", "-np", "32", "-t", cores, "-fa", "on")
    return Recipe("llama.cpp", (*command, "--alias", MODEL_NAME), port, "llama.cpp Q4_1", {"LD_LIBRARY_PATH": str(binaries)})
