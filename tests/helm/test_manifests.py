"""Every manifest against the schemas of Kubernetes 1.27 to the newest, and through kubectl's own decoder."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from kubernetes_validate.utils import all_versions

from tests.helm.chart import CI, Manifest, pod_specs, render
from tests.helm.tools import tool

OLDEST = (1, 27)
VERSIONS = sorted({v for v in all_versions() if tuple(map(int, v.split(".")[:2])) >= OLDEST}, key=lambda v: tuple(map(int, v.split("."))))
CUSTOM = {
    "monitoring.coreos.com/v1": {"PodMonitor", "ServiceMonitor", "PrometheusRule"},
    "keda.sh/v1alpha1": {"ScaledObject"},
    "gateway.networking.k8s.io/v1": {"HTTPRoute"},
}


def is_custom(manifest: Manifest) -> bool:
    return manifest["apiVersion"] in CUSTOM


@cache
def custom_schemas() -> dict[str, Any]:
    """Kind → schema of the fields the chart uses of resources that Kubernetes itself does not define."""
    loaded: dict[str, Any] = json.loads((Path(__file__).parent / "custom_resources.json").read_text())
    return loaded


def test_the_versions_reach_from_the_oldest_supported_to_the_newest() -> None:
    assert VERSIONS[0] == "1.27.0"
    assert len(VERSIONS) >= 10


@pytest.mark.parametrize("version", VERSIONS)
def test_manifests_are_valid(version: str) -> None:
    seen: set[str] = set()
    for values in CI if version in (VERSIONS[0], VERSIONS[-1]) else ("full-values.yaml",):
        for manifest in render(values):
            if not is_custom(manifest):
                kubernetes_validate.validate(manifest, version, strict=True)
                seen.add(manifest["kind"])
    assert len(seen) >= 12


def test_custom_resources_have_the_fields_their_definitions_have() -> None:
    seen: set[str] = set()
    for values in CI:
        for manifest in filter(is_custom, render(values)):
            assert manifest["kind"] in CUSTOM[manifest["apiVersion"]]
            jsonschema.validate(manifest["spec"], custom_schemas()[manifest["kind"]])
            seen.add(manifest["kind"])
    assert seen == set.union(*CUSTOM.values())


@pytest.mark.parametrize("values", CI)
def test_kubectl_reads_every_pod(values: str) -> None:
    wanted = [m for m in render(values) if m["kind"] in ("Deployment", "StatefulSet", "Pod")]
    given = yaml.safe_dump_all(wanted)
    command = [tool("kubectl"), "set", "env", "--local", "--filename", "-", "PROBE=1", "--output", "yaml"]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    decoded = list(yaml.safe_load_all(done.stdout))
    items = [m for d in decoded for m in (d["items"] if d["kind"] == "List" else [d])]
    assert [m["metadata"]["name"] for m in items] == [m["metadata"]["name"] for m in wanted]
    containers = sum(len(spec["containers"] + spec.get("initContainers", [])) for _, _, spec in pod_specs(wanted))
    assert done.stdout.count("name: PROBE") == containers
