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
from benchmarks.peers.memory import pss_bytes, resident_pool_bytes
from headrace.launcher.http import call
from services.common.version import VERSION

_START_TIMEOUT_S = 600.0
_STOP_TIMEOUT_S = 60.0
_PAUSE_TIMEOUT_S = 5.0
_SETTLE_TIMEOUT_S = 60.0
_SAMPLE_S = 0.05
_IDLE_SAMPLES = 20  # one after the other
MODEL_NAME = "smollm2"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to start a server, and what it is."""

    name: str
    command: tuple[str, ...]
    port: int
    version: str
    environment: Mapping[str, str] = field(default_factory=dict)
    pool_bytes: int = 0  # of the key-value pool it was given, 0 if that is not known
    token_bytes: int = 0  # of one token in the pool, where pages come into memory only as tokens are written


class Server:
    """A running server. `stop` must be called."""

    def __init__(self, recipe: Recipe, log: Path) -> None:
        self.recipe = recipe
        self._log = log
        self._begin = time.monotonic()
        with log.open("ab") as out:
            environment = {**_inherited(), **recipe.environment}
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

    def settle(self) -> None:
        """Until it has nothing more to do, such as a warm-up of its own: paused in the middle of one it would look stuck later."""
        end, idle = time.monotonic() + _SETTLE_TIMEOUT_S, 0
        while time.monotonic() < end and idle < _IDLE_SAMPLES:
            time.sleep(_SAMPLE_S)
            idle = 0 if any(wants_to_run(process.pid) for process in self.processes()) else idle + 1

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
        return pss_bytes(self.processes())

    def resident_pool_bytes(self, tokens: int) -> int:
        """Pages of the key-value pool that are in memory, given how many tokens it has been sent or has made."""
        recipe = self.recipe
        most = min(recipe.pool_bytes, tokens * recipe.token_bytes) if recipe.token_bytes else recipe.pool_bytes
        return min(most, resident_pool_bytes(self.processes(), recipe.pool_bytes))

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


def _inherited() -> dict[str, str]:
    """This environment, without what would make a second start of Python programs as slow as the first."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def wants_to_run(pid: int) -> bool:
    """Has the process a thread that runs or would if it had a core?"""
    for task in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            state = task.read_text().rpartition(") ")[2][:1]
        except OSError:  # the thread has ended
            continue
        if state in "RD":
            return True
    return False


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def headrace(name: str, model: Path, port: int, *flags: str, pool_tokens: int, token_bytes: int) -> Recipe:
    """Our whole suite: four processes and the launcher. `token_bytes`: keys and values of one token."""
    start = (sys.executable, "-m", "headrace", "up", "--model", str(model), "--port", str(port))
    pool = ("--max-total-tokens", str(pool_tokens))
    command = (*start, "--served-model-name", MODEL_NAME, *pool, *flags)
    return Recipe(name, command, port, f"headrace {VERSION}", pool_bytes=pool_tokens * token_bytes, token_bytes=token_bytes)


def vllm(environment: Path, model: Path, port: int, pool_gib: int = 2) -> Recipe:
    """vLLM's CPU build in bfloat16, bound to all cores."""
    cores = sorted(os.sched_getaffinity(0))
    settings = {
        "VLLM_CPU_KVCACHE_SPACE": str(pool_gib),
        "VLLM_CPU_OMP_THREADS_BIND": f"{cores[0]}-{cores[-1]}",
        "HF_HUB_OFFLINE": "1",
    }
    program = str(environment / "bin" / "vllm")
    command = (program, "serve", str(model), "--port", str(port), "--dtype", "bfloat16", "--max-model-len", "4096")
    named = (*command, "--served-model-name", MODEL_NAME)
    return Recipe("vLLM", named, port, "vLLM 0.32.0 CPU bf16", settings, pool_gib * 2**30)


def llama_cpp(environment: Path, gguf: Path, port: int) -> Recipe:
    """llama.cpp's server with 32 slots on a GGUF file."""
    binaries = llama_binaries(environment)
    cores = str(len(os.sched_getaffinity(0)))
    command = (str(binaries / "llama-server"), "-m", str(gguf), "--port", str(port), "-c", "40960", "-np", "32", "-t", cores, "-fa", "on")
    return Recipe("llama.cpp", (*command, "--alias", MODEL_NAME), port, "llama.cpp Q4_1", {"LD_LIBRARY_PATH": str(binaries)})
