"""Images: linted, multi-stage, pinned, non-root, and started by the same command the chart uses."""

from __future__ import annotations

import subprocess

import pytest
import yaml

from tests.helm.chart import CHART, pod_specs, render
from tests.helm.dockerfile import FILES, ROOT, stages
from tests.helm.tools import tool


@pytest.mark.parametrize("name", FILES)
def test_linted(name: str) -> None:
    done = subprocess.run([tool("hadolint"), str(FILES[name])], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", FILES)
def test_rules_of_our_own(name: str) -> None:
    build, final = stages(FILES[name])
    assert build.name == "build"
    assert build.base == final.base
    assert build.base.partition(":")[2][0].isdigit(), "the base is pinned"
    assert final.all("COPY") == ["--from=build /opt/headrace /opt/headrace"]
    security = yaml.safe_load((CHART / "values.yaml").read_text())["defaults"]["podSecurityContext"]
    assert final.all("USER") == [f"{security['runAsUser']}:{security['runAsGroup']}"]
    assert final.steps.index(("USER", final.all("USER")[0])) > max(i for i, (word, _) in enumerate(final.steps) if word in ("RUN", "COPY"))
    assert "--host" in final.exec_form("CMD")


def test_only_the_scheduler_brings_torch() -> None:
    for name, file in FILES.items():
        assert ("torch" in file.read_text()) == (name == "scheduler")
        assert any(f"[{name}]" in run or "[$EXTRAS]" in run for run in stages(file)[0].all("RUN"))


def test_the_chart_starts_what_the_image_starts() -> None:
    entries = {name: stages(file)[-1].exec_form("ENTRYPOINT") for name, file in FILES.items()}
    for name, _, spec in pod_specs(render("nothing-values.yaml")):
        if "test" not in name:
            main = spec["containers"][0]
            assert main["command"] == entries[main["name"]]
            assert main["image"].rpartition("/")[2].startswith(f"headrace-{main['name']}:")
            exposed = {int(port) for port in stages(FILES[main["name"]])[-1].all("EXPOSE")[0].split()}
            assert exposed == {port["containerPort"] for port in main["ports"]}


def test_what_is_copied_is_not_ignored() -> None:
    kept = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for file in FILES.values():
        copied = {word for rest in stages(file)[0].all("COPY") for word in rest.split()[:-1]}
        assert copied == kept
