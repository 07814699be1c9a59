"""Which processes run, with which flags: decided before anything starts."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.launcher.args import SplitArguments
from headrace.launcher.child import ChildSpec
from headrace.launcher.config import UpConfig
from headrace.launcher.ports import Ports
from headrace.models.resolve import Resolved
from headrace.programs import PROGRAMS

_LOOPBACK = "127.0.0.1"
_GATEWAY, _WORKER, _DETOKENIZER, _TOKENIZER = range(4)  # stages of the stop


@dataclass(frozen=True, slots=True)
class Machine:
    """What the plan needs to know of the machine."""

    cores: int


def threads_per_worker(cores: int, workers: int) -> int:
    """The cores divided among the workers; each gets at least one thread."""
    return max(1, cores // workers)


def plan(config: UpConfig, arguments: SplitArguments, model: Resolved, ports: Ports, machine: Machine) -> list[ChildSpec]:
    """All children. A flag the user gave comes last and so wins over the planned one."""
    folder = str(model.folder)
    own = arguments.services
    text = ["--model-path", folder]
    specs = [
        _spec("tokenizer", "tokenizer", _TOKENIZER, _where(ports.tokenizer), text, own["tokenizer"]),
        _spec("detokenizer", "detokenizer", _DETOKENIZER, _where(ports.detokenizer), text, own["detokenizer"]),
    ]
    for i, pair in enumerate(ports.workers):
        name = "worker" if config.workers == 1 else f"worker-{i}"
        flags = ["--model-path", folder, "--served-model-name", model.name, *_threads(config, machine)]
        specs.append(_spec("scheduler", name, _WORKER, _where(pair), flags, own["scheduler"]))
    gateway = [
        *("--host", config.host, "--port", str(ports.rest), "--grpc-port", str(ports.grpc), "--metrics-port", str(ports.rest_metrics)),
        *("--tokenizer", f"{_LOOPBACK}:{ports.tokenizer[0]}", "--detokenizer", f"{_LOOPBACK}:{ports.detokenizer[0]}"),
        *("--workers", *(f"{_LOOPBACK}:{port}" for port, _ in ports.workers)),
        *("--drain-timeout", f"{config.stop_timeout:g}"),
    ]
    specs.append(_spec("gateway", "gateway", _GATEWAY, gateway, [], own["gateway"]))
    return specs


def _threads(config: UpConfig, machine: Machine) -> list[str]:
    return ["--cpu-threads", str(threads_per_worker(machine.cores, config.workers))]


def _where(pair: tuple[int, int]) -> list[str]:
    return ["--host", _LOOPBACK, "--port", str(pair[0]), "--metrics-port", str(pair[1])]


def _spec(program: str, name: str, stage: int, where: list[str], flags: list[str], given: list[str]) -> ChildSpec:
    return ChildSpec(name, PROGRAMS[program].module, (*where, *flags, *given), stage)
