"""What a soak watches: memory, descriptors, threads and asyncio tasks of every process, and the scheduler's books."""

from __future__ import annotations

import contextlib
import re
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field

import psutil

_MIB = 1 << 20
_SERVICES = ("gateway", "services.tokenizer", "services.detokenizer", "services.scheduler", "services.scheduler.engine_main")
_SAMPLE = re.compile(r"^(\w+)(?:\{[^}]*\})? (\S+)$")


@dataclass(frozen=True, slots=True)
class Sample:
    """One process at one moment; `at` in seconds since the start."""

    at: float
    rss_mib: float
    descriptors: int
    threads: int
    tasks: int | None  # asyncio tasks, of processes that tell


@dataclass
class Watched:
    """One process and what was seen of it."""

    name: str
    process: psutil.Process
    metrics_port: int | None
    samples: list[Sample] = field(default_factory=list)

    def look(self, at: float) -> None:
        """Take a sample. Raises psutil.NoSuchProcess if it is gone, which a soak must not survive."""
        with self.process.oneshot():
            rss = self.process.memory_info().rss / _MIB
            descriptors, threads = self.process.num_fds(), self.process.num_threads()
        tasks = None
        if self.metrics_port is not None:
            with contextlib.suppress(OSError):  # a starved process answers late, and its memory is of interest all the same
                tasks = int(read_metrics(self.metrics_port).get("headrace_asyncio_tasks", 0))
        self.samples.append(Sample(at, rss, descriptors, threads, tasks))

    def after(self, at: float) -> list[Sample]:
        """Samples from that moment on."""
        return [sample for sample in self.samples if sample.at >= at]


def find_processes(launcher: int) -> list[Watched]:
    """The launcher and its services, named by what each runs. What it starts for a moment, to warm them up, is not among them."""
    root = psutil.Process(launcher)
    found = [Watched("launcher", root, None)]
    for child in root.children(recursive=True):
        command = child.cmdline()
        module = next((part for part in command if part in _SERVICES), None)
        if module is not None:
            port = int(command[command.index("--metrics-port") + 1]) if "--metrics-port" in command else None
            found.append(Watched(module.removeprefix("services."), child, port))
    return found


def read_metrics(port: int) -> dict[str, float]:
    """Every sample of a process's /metrics, series of one name added up."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return parse_metrics(answer.read().decode())


def parse_metrics(text: str) -> dict[str, float]:
    """Samples of the text format, series of one name added up."""
    values: dict[str, float] = {}
    for line in text.splitlines():
        if found := _SAMPLE.match(line):
            values[found[1]] = values.get(found[1], 0.0) + float(found[2])
    return values


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Least squares: rise of y per unit of x; 0 for fewer than two points."""
    if len(points) < 2:
        return 0.0
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def rss_slope(samples: Sequence[Sample]) -> float:
    """MiB a minute."""
    return 60 * slope([(sample.at, sample.rss_mib) for sample in samples])
