"""Rendering the chart with the real helm, and reading what came out."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.helm.tools import tool

CHART = Path(__file__).parents[2] / "helm"
CI = tuple(sorted(path.name for path in (CHART / "ci").glob("*-values.yaml")))
RELEASE, NAMESPACE = "rel", "serving"

Manifest = dict[str, Any]


def helm(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run helm; with `check` a failure raises with what it said."""
    done = subprocess.run([tool("helm"), *arguments], capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def template(values: str, sets: Sequence[str] = (), *, check: bool = True) -> subprocess.CompletedProcess[str]:
    """`helm template` with a file of ci/ and more --set-json settings."""
    more = [word for one in sets for word in ("--set-json", one)]
    return helm("template", RELEASE, str(CHART), "--namespace", NAMESPACE, "--values", str(CHART / "ci" / values), *more, check=check)


@cache
def text(values: str, sets: tuple[str, ...] = ()) -> str:
    """The rendered release, as YAML."""
    return template(values, sets).stdout


def render(values: str, *sets: str) -> list[Manifest]:
    """The rendered manifests."""
    return [document for document in yaml.safe_load_all(text(values, sets)) if document]


def of_kind(manifests: Sequence[Manifest], *kinds: str) -> dict[str, Manifest]:
    """Manifests of some kinds by name."""
    return {m["metadata"]["name"]: m for m in manifests if m["kind"] in kinds}


def workloads(manifests: Sequence[Manifest]) -> dict[str, Manifest]:
    """Deployments and StatefulSets by component: gateway, tokenizer, detokenizer, worker-…"""
    found = of_kind(manifests, "Deployment", "StatefulSet")
    return {name.removeprefix(f"{RELEASE}-headrace-"): m for name, m in found.items()}


def pod_specs(manifests: Sequence[Manifest]) -> Iterator[tuple[str, Manifest, Manifest]]:
    """(name, pod metadata, pod spec) of everything that becomes a pod."""
    for manifest in manifests:
        if manifest["kind"] == "Pod":
            yield manifest["metadata"]["name"], manifest["metadata"], manifest["spec"]
        elif manifest["kind"] in ("Deployment", "StatefulSet"):
            template = manifest["spec"]["template"]
            yield manifest["metadata"]["name"], template["metadata"], template["spec"]


def config_files(manifests: Sequence[Manifest]) -> dict[str, tuple[str, str]]:
    """Component → (program, text of its configuration file)."""
    found = {}
    for name, manifest in of_kind(manifests, "ConfigMap").items():
        for file, content in manifest["data"].items():
            if file.endswith(".yaml"):
                found[name.removeprefix(f"{RELEASE}-headrace-")] = (file.removesuffix(".yaml"), content)
    return found
