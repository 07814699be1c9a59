"""A rendered release as processes on this machine: the chart's command lines, files and probes, with paths and addresses moved here.

What a cluster would provide is replaced one to one: mounted files by files in a folder, pod names by loopback ports, the
kubelet's probes by the same questions asked here. Commands, settings and environment stay as rendered.
"""

from __future__ import annotations

import os
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.helm.chart import NAMESPACE, RELEASE, Manifest, of_kind, workloads
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
_MOUNTED = re.compile(r"^/etc/headrace/config/\w+\.yaml$")
_SECRETS = "/etc/headrace/"
_PORTS = ("port", "grpc_port", "metrics_port")
_ADDRESS = re.compile(rf"^(?:dns:///)?{RELEASE}-headrace-([a-z0-9-]+?)(?:-(\d+)\.{RELEASE}-headrace-\1)?\.{NAMESPACE}\.svc:\d+$")


@dataclass
class Pod:
    """One replica of a component: how it is started, and the process while it runs."""

    component: str
    index: int
    container: Manifest
    grace: int
    config: dict[str, Any]
    folder: Path
    process: subprocess.Popen[bytes] | None = None
    started: int = 0
    codes: list[int] = field(default_factory=list)

    @property
    def log(self) -> Path:
        """Everything the pod's processes wrote."""
        return self.folder / "log"

    def start(self) -> None:
        """Run the container's command as the image would: from another folder, with the rendered environment only."""
        self._file.write_text(yaml.safe_dump(self.config))
        self.process = subprocess.Popen(
            self._here([*self.container["command"], *self.container["args"]]),
            cwd=self.folder,
            env=self._environment(),
            stdout=subprocess.DEVNULL,
            stderr=self.log.open("ab"),
            start_new_session=True,
        )
        self.started += 1

    @property
    def _file(self) -> Path:
        return self.folder / "config.yaml"

    def _here(self, words: list[str]) -> list[str]:
        """A command of the container with this machine's Python and the file that stands for the mounted one."""
        assert words[0] == "python"
        return [sys.executable, *(str(self._file) if _MOUNTED.match(word) else word for word in words[1:])]

    def _environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "OMP_NUM_THREADS") if name in os.environ}
        rendered = {one["name"]: one["value"] for one in self.container["env"] if "value" in one}
        moved = {name: value.replace("/var/cache/headrace", str(self.folder / "cache")) for name, value in rendered.items()}
        identity = {"POD_NAME": f"{self.component}-{self.index}", "POD_NAMESPACE": NAMESPACE, "HOME": str(self.folder)}
        return {**kept, **moved, **identity, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}

    def probe(self, kind: str) -> bool:
        """Ask what the rendered probe asks: startup, readiness or liveness."""
        probe = self.container[f"{kind}Probe"]
        if "httpGet" in probe:
            scheme = probe["httpGet"].get("scheme", "HTTP").lower()
            return _http_ok(f"{scheme}://127.0.0.1:{self.config['port']}{probe['httpGet']['path']}", probe["timeoutSeconds"])
        if "exec" in probe:
            command = self._here(probe["exec"]["command"])
            return subprocess.run(command, cwd=self.folder, env=self._environment(), capture_output=True, check=False).returncode == 0
        return _grpc_serving(self.config["port"], probe["grpc"]["service"], probe["timeoutSeconds"])

    def wait(self, kind: str, wanted: bool = True, seconds: float = 60) -> None:
        """Until a probe says what is wanted. Raises AssertionError with the log if it does not, or if the process ends."""
        end = time.monotonic() + seconds
        while self.probe(kind) is not wanted:
            assert self.process is not None
            ended = wanted and self.process.poll() is not None
            assert not ended and time.monotonic() < end, f"{self.component}: {kind} is not {wanted}\n{self.log.read_text()}"
            time.sleep(0.1)

    def stop(self, number: int = signal.SIGTERM, *, group: bool = False) -> None:
        """Signal the main process as the kubelet does, or its whole group as a careless supervisor does."""
        assert self.process is not None
        if group:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)

    def join(self, seconds: float | None = None) -> int:
        """Wait for the end within the grace period; returns the exit code."""
        assert self.process is not None
        code = self.process.wait(self.grace if seconds is None else seconds)
        self.codes.append(code)
        self.process = None
        return code


_UNVERIFIED = ssl._create_unverified_context()  # the kubelet does not check a probe's certificate either


def _http_ok(url: str, timeout: float) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=timeout, context=_UNVERIFIED) as response:
            return bool(response.status < 400)
    except (urllib.error.URLError, OSError):
        return False


def _grpc_serving(port: int, service: str, timeout: float) -> bool:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service), timeout=timeout)
        except grpc.RpcError:
            return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


class Release:
    """All pods of a rendered release. `overrides`: settings per kind of component that this machine needs, such as a small model.

    `secrets`: a folder that stands for /etc/headrace, with the mounted secrets below it.
    """

    def __init__(
        self, manifests: list[Manifest], folder: Path, overrides: Mapping[str, Mapping[str, Any]], *, secrets: Path | None = None
    ) -> None:
        self.pods: dict[str, list[Pod]] = {}
        self._secrets = secrets or folder / "no-secrets"
        configs = of_kind(manifests, "ConfigMap")
        for component, workload in workloads(manifests).items():
            spec = workload["spec"]["template"]["spec"]
            text = next(iter(configs[f"{RELEASE}-headrace-{component}"]["data"].values()))
            more = overrides.get(component.partition("-")[0], {})
            self.pods[component] = [
                self._pod(component, index, spec, {**yaml.safe_load(text), **more}, folder) for index in range(workload["spec"]["replicas"])
            ]
        for pod in self.all():
            for key, value in pod.config.items():
                if isinstance(value, list):
                    pod.config[key] = [address for one in value for address in self._moved(one)]
                elif isinstance(value, str) and value.startswith(_SECRETS):
                    assert secrets is not None, f"{key} is a mounted secret"
                    pod.config[key] = str(secrets / value.removeprefix(_SECRETS))

    def _pod(self, component: str, index: int, spec: Manifest, config: dict[str, Any], folder: Path) -> Pod:
        home = folder / f"{component}-{index}"
        home.mkdir()
        ports = {key: free_port() for key in _PORTS if key in config}
        settings = {**config, **ports, "host": "127.0.0.1"}
        return Pod(component, index, spec["containers"][0], spec["terminationGracePeriodSeconds"], settings, home)

    def _moved(self, address: str) -> list[str]:
        """Where on this machine the pods of a rendered address are."""
        found = _ADDRESS.match(str(address))
        if found is None:
            return [address]
        pods = self.pods[found[1]]
        chosen = pods if found[2] is None else pods[int(found[2]) : int(found[2]) + 1]
        return [f"127.0.0.1:{pod.config['port']}" for pod in chosen]

    def all(self) -> Iterator[Pod]:
        """Every pod, gateways last."""
        for component in sorted(self.pods, key=lambda name: name == "gateway"):
            yield from self.pods[component]

    def helm_test(self, manifests: list[Manifest]) -> subprocess.CompletedProcess[str]:
        """What `helm test` runs in its pod, with the first gateway in place of the Service's name."""
        [pod] = [m for m in manifests if m["kind"] == "Pod"]
        [one] = pod["spec"]["containers"]
        given = {entry["name"]: entry["value"] for entry in one["env"]}
        scheme = given["GATEWAY"].partition(":")[0]
        gateway = f"{scheme}://127.0.0.1:{self.pods['gateway'][0].config['port']}"
        arguments = [*one["command"][1:], *(word.replace("/etc/headrace", str(self._secrets)) for word in one["args"])]
        assert one["command"][0] == "python"
        environment = {**given, "GATEWAY": gateway, "PATH": os.environ["PATH"]}
        return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)

    @contextmanager
    def running(self) -> Iterator[Release]:
        """Start everything, wait until all is ready; kill what is left at the end."""
        try:
            for pod in self.all():
                pod.start()
            for pod in self.all():
                pod.wait("startup")
            for pod in self.all():
                pod.wait("readiness")
            yield self
        finally:
            for pod in self.all():
                if pod.process is not None:
                    pod.process.kill()
                    pod.process.wait()
