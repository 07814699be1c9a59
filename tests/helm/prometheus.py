"""A real Prometheus for a while, scraping addresses of this machine every two seconds with the chart's rules."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.helm.tools import tool
from tests.ports import free_port

RULES = Path(__file__).parents[2] / "helm/files/rules.yaml"


@dataclass(frozen=True)
class Prometheus:
    """A running one."""

    address: str

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.address}/api/v1/{path}", timeout=10) as response:
            return json.load(response)["data"]

    def ask(self, query: str) -> list[dict[str, Any]]:
        """The vector a query gives now."""
        result: list[dict[str, Any]] = self._get(f"query?{urllib.parse.urlencode({'query': query})}")["result"]
        return result

    def rules(self) -> list[dict[str, Any]]:
        """All rules with their health."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def firing(self) -> set[str]:
        """Names of the alerts that fire."""
        return {alert["labels"]["alertname"] for alert in self._get("alerts")["alerts"] if alert["state"] == "firing"}


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    """Until something holds; not being able to ask counts as no."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if condition():
                return
        except OSError:
            pass
        time.sleep(0.2)
    raise AssertionError(f"{what}: not within {seconds} s")


@contextmanager
def prometheus(folder: Path, targets: Sequence[str], *, hasty: bool = False) -> Iterator[Prometheus]:
    """Run until the block ends, entered after two scrapes. `hasty`: minutes and days of the rules become seconds."""
    rules = RULES.read_text()
    if hasty:
        rules = re.sub(r"for: \d+m", "for: 1s", re.sub(r"\[\d+m\]", "[10s]", rules))
        rules = rules.replace("[1d] offset 1h", "[30s] offset 12s").replace("turn_age_seconds > 30", "turn_age_seconds > 2")
    (folder / "rules.yaml").write_text(rules)
    scrape = {"job_name": "headrace", "static_configs": [{"targets": list(targets), "labels": {"namespace": "n"}}]}
    settings = {"global": {"scrape_interval": "2s", "evaluation_interval": "1s"}, "scrape_configs": [scrape], "rule_files": ["rules.yaml"]}
    config = folder / "prometheus.yml"
    config.write_text(yaml.safe_dump(settings))
    address = f"127.0.0.1:{free_port()}"
    command = [tool("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}"]
    with (folder / "prometheus.log").open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        running = Prometheus(f"http://{address}")
        try:
            wait_for(lambda: len(running.ask("sum_over_time(up[1m]) >= 2")) == len(targets), "two scrapes of every target")
            yield running
        finally:
            process.terminate()
            process.wait(20)
