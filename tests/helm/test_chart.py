"""What the chart renders: valid for every supported Kubernetes, safe to upgrade, restricted, and no setting lost."""

from __future__ import annotations

import math
from typing import Any

import pytest
import yaml

from services.common.metric_families import FAMILIES
from tests.helm.chart import CHART, CI, Manifest, config_files, helm, of_kind, pod_specs, render, template, workloads

BASE = "default-values.yaml"
FULL = "full-values.yaml"


def container(workload: Manifest) -> Manifest:
    found: Manifest = workload["spec"]["template"]["spec"]["containers"][0]
    return found


@pytest.mark.parametrize("values", CI)
def test_lint(values: str) -> None:
    helm("lint", "--strict", str(CHART), "--values", str(CHART / "ci" / values))


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("gateway.nope=1", "nope"),
        ("nope=1", "nope"),
        ("models.smollm2.nope=1", "nope"),
        ("gateway.modelCache={}", "modelCache"),
        ('tokenizer.image.tag="latest"', "tag"),
        ('worker.image.tag="1.0-latest"', "tag"),
        ("defaults.probes.liveness.initialDelaySeconds=3", "initialDelaySeconds"),
        ('gateway.autoscaling.kind="both"', "kind"),
        ("gateway.autoscaling.minReplicas=0", "minReplicas"),
        ('worker.config={"Wrong Key": 1}', "Wrong Key"),
        ('models={"Bad_Name": {}}', "Bad_Name"),
        ('models.smollm2.profile="tpu"', "tpu"),
        ("gateway.terminationGracePeriodSeconds=30", "terminationGracePeriodSeconds"),
        ('models.smollm2={"kind": "Deployment", "modelCache": {"kind": "claimPerPod"}}', "claimPerPod"),
        ('tokenizer.modelCache.claimName=""', "claimName"),
        ('secrets.tls.name="t"', "serverName"),
        ('models={"a": {"fetch": "one"}, "b": {"fetch": "two"}}', "models.a and models.b come from different folders"),
    ],
)
def test_wrong_values_are_refused_by_name(setting: str, named: str) -> None:
    done = template(BASE, [setting], check=False)
    assert done.returncode != 0
    assert named in done.stderr


def test_pods_without_names_cannot_be_listed() -> None:
    done = template(BASE, ['gateway.discovery="static"', 'worker.kind="Deployment"'], check=False)
    assert "discovery" in done.stderr
    assert done.returncode != 0


def test_selectors_never_change() -> None:
    """They are immutable: whatever the values and the version, an upgrade must be able to apply."""

    def selectors(manifests: list[Manifest]) -> dict[str, Any]:
        return {
            name: (m["spec"]["selector"], m["spec"].get("serviceName"), m["spec"].get("podManagementPolicy"))
            for name, m in workloads(manifests).items()
        }

    plain = selectors(render(BASE))
    changed = render(
        BASE, 'defaults.podLabels={"a":"b"}', 'defaults.image.tag="9.9.9"', "models.smollm2.replicas=7", 'worker.profile="gpu"'
    )
    assert selectors(changed) == plain
    for name, (selector, _, _) in plain.items():
        labels = workloads(changed)[name]["spec"]["template"]["metadata"]["labels"]
        assert selector["matchLabels"].items() <= labels.items()
        assert not {"app.kubernetes.io/version", "helm.sh/chart"} & set(selector["matchLabels"])
    assert len({str(s) for s, _, _ in plain.values()}) == len(plain)


@pytest.mark.parametrize("values", CI)
def test_services_policies_and_budgets_select_exactly_their_pods(values: str) -> None:
    manifests = render(values)
    pods = {name: m["spec"]["template"]["metadata"]["labels"] for name, m in of_kind(manifests, "Deployment", "StatefulSet").items()}
    for kind, path in (
        ("Service", ("selector",)),
        ("PodDisruptionBudget", ("selector", "matchLabels")),
        ("NetworkPolicy", ("podSelector", "matchLabels")),
    ):
        for name, manifest in of_kind(manifests, kind).items():
            selector = manifest["spec"]
            for key in path:
                selector = selector[key]
            assert [pod for pod, labels in pods.items() if selector.items() <= labels.items()] == [name]


def test_every_pod_setting_reaches_every_pod() -> None:
    wanted = yaml.safe_load((CHART / "ci" / FULL).read_text())["defaults"]
    pods = list(pod_specs(render(FULL)))
    assert len(pods) == 5
    for name, metadata, spec in pods:
        assert wanted["podAnnotations"].items() <= metadata["annotations"].items(), name
        assert wanted["podLabels"].items() <= metadata["labels"].items(), name
        for key in ("imagePullSecrets", "nodeSelector", "tolerations", "affinity", "priorityClassName"):
            assert spec[key] == wanted[key], (name, key)
        assert spec["containers"][0]["image"].startswith("registry.example.com/serving/headrace-"), name
        if "test" not in name:
            main = spec["containers"][0]
            assert wanted["env"][0] in main["env"]
            assert wanted["volumes"][0] in spec["volumes"]
            assert wanted["volumeMounts"][0] in main["volumeMounts"]
            assert {c["whenUnsatisfiable"] for c in spec["topologySpreadConstraints"]} == {"DoNotSchedule"}


@pytest.mark.parametrize("values", CI)
def test_pods_are_restricted(values: str) -> None:
    """The Pod Security Standard "restricted", and a read-only root."""
    for name, _, spec in pod_specs(render(values)):
        pod = spec["securityContext"]
        assert pod["runAsNonRoot"] is True, name
        assert pod["runAsUser"] > 0, name
        assert pod["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec), name
        assert all({"configMap", "secret", "emptyDir", "persistentVolumeClaim", "name"} >= set(v) for v in spec.get("volumes", [])), name
        for one in spec["containers"] + spec.get("initContainers", []):
            assert one["securityContext"]["allowPrivilegeEscalation"] is False, name
            assert one["securityContext"]["readOnlyRootFilesystem"] is True, name
            assert one["securityContext"]["capabilities"] == {"drop": ["ALL"]}, name


@pytest.mark.parametrize("values", CI)
def test_images_are_pinned(values: str) -> None:
    for name, _, spec in pod_specs(render(values)):
        for one in spec["containers"] + spec.get("initContainers", []):
            tag = one["image"].rpartition(":")[2]
            assert tag[0].isdigit(), name


def test_a_digest_pins_an_image() -> None:
    digest = "sha256:" + "a" * 64
    image = container(workloads(render(BASE, f'gateway.image.digest="{digest}"'))["gateway"])["image"]
    assert image == f"localhost/headrace-gateway:0.1.0@{digest}"


@pytest.mark.parametrize("values", CI)
def test_grace_covers_pre_stop_and_drain(values: str) -> None:
    for name, workload in workloads(render(values)).items():
        spec = workload["spec"]["template"]["spec"]
        config = yaml.safe_load(next(iter(of_kind(render(values), "ConfigMap")[f"rel-headrace-{name}"]["data"].values())))
        sleep = float(container(workload)["lifecycle"]["preStop"]["exec"]["command"][1])
        assert spec["terminationGracePeriodSeconds"] >= sleep + config["drain_timeout"] + 15


def test_the_drain_lasts_as_long_as_the_longest_answer() -> None:
    drains = {
        name: workload["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        for name, workload in workloads(render("gpu-values.yaml")).items()
    }
    longest = math.ceil(32768 * 0.02 + 30)
    assert drains == {
        "gateway": longest + 10 + 15,
        "detokenizer": longest + 5 + 15,
        "worker-llama": longest + 5 + 15,
        "tokenizer": 10 + 5 + 15,
    }


@pytest.mark.parametrize("values", CI)
def test_a_load_has_its_budget_and_liveness_waits_for_it(values: str) -> None:
    for name, workload in workloads(render(values)).items():
        main = container(workload)
        startup, live = main["startupProbe"], main["livenessProbe"]
        budget = {"worker-m": 1800, "worker-llama": 1800}.get(name, 900 if name.startswith("worker") else 120)
        if values == "tiers-values.yaml" and name.startswith("worker"):
            budget = 900
        assert startup["failureThreshold"] * startup["periodSeconds"] >= budget, name
        assert "initialDelaySeconds" not in str(main)
        assert live["failureThreshold"] * live["periodSeconds"] >= 60, name


def test_probes_ask_the_named_service_for_readiness_and_the_process_for_life() -> None:
    found = {name: container(w) for name, w in workloads(render(BASE)).items()}
    for name, service in (
        ("tokenizer", "headrace.tokenizer.v1.Tokenizer"),
        ("detokenizer", "headrace.detokenizer.v1.Detokenizer"),
        ("worker-smollm2", "headrace.scheduler.v1.Scheduler"),
    ):
        port = next(p["containerPort"] for p in found[name]["ports"] if p["name"] == "grpc")
        assert found[name]["readinessProbe"]["grpc"] == {"port": port, "service": service}
        assert found[name]["startupProbe"]["grpc"] == {"port": port, "service": service}
        assert found[name]["livenessProbe"]["grpc"] == {"port": port, "service": ""}
    assert found["gateway"]["readinessProbe"]["httpGet"] == {"path": "/ready", "port": "http"}
    assert "generate" not in str(found["gateway"]["livenessProbe"])


def test_probes_work_where_links_have_tls() -> None:
    main = container(workloads(render(FULL))["worker-m"])
    command = main["readinessProbe"]["exec"]["command"]
    assert command[:3] == ["python", "-m", "services.common.probe"]
    assert command[-1] == "headrace.scheduler.v1.Scheduler"
    assert "--service" not in main["livenessProbe"]["exec"]["command"]
    for kind in ("startup", "readiness", "liveness"):
        probe = main[f"{kind}Probe"]
        assert probe["timeoutSeconds"] >= 10, "a program is started for it"
        assert probe["periodSeconds"] >= probe["timeoutSeconds"]


@pytest.mark.parametrize("component", ["gateway", "tokenizer", "detokenizer", "worker-smollm2"])
@pytest.mark.parametrize("kind", ["none", "hpa", "keda"])
def test_one_owner_of_the_replica_count(component: str, kind: str) -> None:
    path = component if "worker" not in component else "worker"
    manifests = render(BASE, f'{path}.autoscaling.kind="{kind}"')
    name = f"rel-headrace-{component}"
    assert ("replicas" in workloads(manifests)[component]["spec"]) == (kind == "none")
    assert (name in of_kind(manifests, "HorizontalPodAutoscaler")) == (kind == "hpa")
    assert (name in of_kind(manifests, "ScaledObject")) == (kind == "keda")
    if kind == "hpa":
        assert of_kind(manifests, "HorizontalPodAutoscaler")[name]["spec"]["minReplicas"] >= 1


def test_scaling_follows_a_metric_we_export() -> None:
    exported = {family.name for family in FAMILIES["scheduler"]}
    hpa = of_kind(render(FULL), "HorizontalPodAutoscaler")["rel-headrace-worker-m"]
    assert hpa["spec"]["metrics"][0]["pods"]["metric"]["name"] in exported
    keda = of_kind(render("gpu-values.yaml"), "ScaledObject")["rel-headrace-worker-llama"]
    query = keda["spec"]["triggers"][0]["metadata"]["query"]
    assert query == 'sum(headrace_worker_waiting_requests{namespace="serving", model_name="llama"})'


@pytest.mark.parametrize("values", CI)
def test_access_to_the_api_only_where_it_is_used(values: str) -> None:
    manifests = render(values)
    used = "kubernetes" in str(yaml.safe_load((CHART / "ci" / values).read_text()).get("gateway", {}))
    assert bool(of_kind(manifests, "Role", "ServiceAccount", "RoleBinding")) == used
    for name, _, spec in pod_specs(manifests):
        assert spec["automountServiceAccountToken"] == (used and name.endswith("gateway"))
    for role in of_kind(manifests, "Role").values():
        assert role["rules"] == [{"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]}]


def test_services_behind_the_gateway_are_headless_and_closed_to_others() -> None:
    manifests = render(BASE)
    for name, service in of_kind(manifests, "Service").items():
        assert (service["spec"].get("clusterIP") == "None") == (not name.endswith("-gateway"))
    for name, policy in of_kind(manifests, "NetworkPolicy").items():
        if not name.endswith("-gateway"):
            rule = policy["spec"]["ingress"][0]
            assert rule["from"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "gateway"
    assert of_kind(render("tiers-values.yaml"), "NetworkPolicy") == {}


def test_the_test_pod_reaches_a_gateway_that_is_closed_to_others() -> None:
    manifests = render(FULL)
    allowed = of_kind(manifests, "NetworkPolicy")["rel-headrace-gateway"]["spec"]["ingress"][0]["from"]
    labels = next(metadata["labels"] for name, metadata, _ in pod_specs(manifests) if name.endswith("-test"))
    assert len(allowed) == 2
    assert allowed[1]["podSelector"]["matchLabels"].items() <= labels.items()


def test_a_budget_never_keeps_a_node_from_draining() -> None:
    """maxUnavailable of at least one lets a single replica go; minAvailable 1 would hold it for ever."""
    for budget in of_kind(render("nothing-values.yaml"), "PodDisruptionBudget").values():
        assert budget["spec"]["maxUnavailable"] == 1
        assert "minAvailable" not in budget["spec"]
        assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert template(BASE, ["gateway.pdb.maxUnavailable=0"], check=False).returncode != 0


@pytest.mark.parametrize("values", CI)
def test_workers_start_side_by_side_and_others_have_a_successor_first(values: str) -> None:
    for name, workload in workloads(render(values)).items():
        if workload["kind"] == "StatefulSet":
            assert workload["spec"]["podManagementPolicy"] == "Parallel"
        else:
            surge = 0 if name.startswith("worker") else 1
            assert workload["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": surge, "maxUnavailable": 1 - surge}


def test_the_network_lets_through_what_is_needed_and_nothing_else() -> None:
    manifests = render(FULL)
    pods = {name: metadata["labels"] for name, metadata, _ in pod_specs(manifests)}
    policies = {name: policy["spec"]["ingress"] for name, policy in of_kind(manifests, "NetworkPolicy").items()}

    def reaches(source: str, target: str, port: str) -> bool:
        """Between pods of the release's own namespace."""
        for rule in policies[target]:
            selectors = [one["podSelector"]["matchLabels"] for one in rule.get("from", []) if "podSelector" in one]
            if port in {one["port"] for one in rule["ports"]} and any(own.items() <= pods[source].items() for own in selectors):
                return True
        return False

    flows = {
        (source.removeprefix("rel-headrace-"), target.removeprefix("rel-headrace-"), port)
        for source in pods
        for target in policies
        for port in ("http", "grpc", "metrics")
        if reaches(source, target, port)
    }
    services = {("gateway", target, "grpc") for target in ("tokenizer", "detokenizer", "worker-m")}
    assert flows == services | {("test", "gateway", "http"), ("test", "gateway", "grpc")}


def test_no_shared_memory_without_ranks_that_share_it() -> None:
    assert "/dev/shm" not in str(render(BASE))
    assert "/dev/shm" in str(render("gpu-values.yaml"))


def test_workers_are_found_by_the_name_of_their_service() -> None:
    def gateway(values: str, *sets: str) -> dict[str, Any]:
        found: dict[str, Any] = yaml.safe_load(config_files(render(values, *sets))["gateway"][1])
        return found

    assert gateway(BASE)["worker_dns"] == ["rel-headrace-worker-smollm2.serving.svc:30100"]
    assert len(gateway("tiers-values.yaml")["worker_dns"]) == 2
    manifests = render(FULL)
    selector = dict(label.split("=") for label in gateway(FULL)["selector"])
    matching = [
        name for name, service in of_kind(manifests, "Service").items() if selector.items() <= service["metadata"]["labels"].items()
    ]
    assert matching == ["rel-headrace-worker-m"]
    port = next(p for p in of_kind(manifests, "Service")[matching[0]]["spec"]["ports"] if p["name"] == "grpc")
    assert port["targetPort"] == "grpc"
    pods = gateway(BASE, 'gateway.discovery="static"', "worker.replicas=2")["workers"]
    assert pods == [f"rel-headrace-worker-smollm2-{i}.rel-headrace-worker-smollm2.serving.svc:30100" for i in (0, 1)]


def test_a_changed_setting_rolls_only_its_pods() -> None:
    def checksums(*sets: str) -> dict[str, str]:
        found = workloads(render(BASE, *sets))
        return {n: w["spec"]["template"]["metadata"]["annotations"]["headrace/config-checksum"] for n, w in found.items()}

    before, after = checksums(), checksums('tokenizer.config.log_level="debug"')
    assert {name for name in before if before[name] != after[name]} == {"tokenizer"}


def test_secrets_are_referenced_never_rendered() -> None:
    for values in CI:
        assert of_kind(render(values), "Secret") == {}


def test_without_models_it_serves_the_embedded_one() -> None:
    assert set(workloads(render("nothing-values.yaml"))) == {"gateway", "tokenizer", "detokenizer", "worker-smollm2"}


def test_a_model_is_fetched_by_every_pod_that_reads_it() -> None:
    for name, workload in workloads(render("nothing-values.yaml")).items():
        init = workload["spec"]["template"]["spec"].get("initContainers", [])
        assert [one["name"] for one in init] == ([] if name == "gateway" else ["fetch"])
        for one in init:
            assert {"name": "MODEL", "value": "smollm2-135m-instruct"} in one["env"]
            assert one["image"] == "localhost/headrace-scheduler:0.1.0"


def test_tokenizer_and_detokenizer_take_the_first_models_folder_unless_told() -> None:
    configs = {name: yaml.safe_load(content) for name, (_, content) in config_files(render(BASE)).items()}
    for name in ("tokenizer", "detokenizer"):
        assert configs[name]["model_path"] == "/var/cache/headrace/smollm2"
        assert configs[name]["served_model_name"] == "smollm2"
    told = {name: yaml.safe_load(content) for name, (_, content) in config_files(render("tiers-values.yaml")).items()}
    assert told["tokenizer"]["model_path"] == "/models/m"


def test_two_models_of_one_tokenizer_are_one_release() -> None:
    models = 'models={"a": {"config": {"model_path": "/m/a"}}, "b": {"replicas": 2, "config": {"model_path": "/m/b"}}}'
    told = ('tokenizer.config.model_path="/m/a"', 'detokenizer.config.model_path="/m/a"')
    manifests = render("nothing-values.yaml", models, *told)
    assert set(workloads(manifests)) == {"gateway", "tokenizer", "detokenizer", "worker-a", "worker-b"}
    files = {name: yaml.safe_load(content) for name, (_, content) in config_files(manifests).items()}
    assert {name: files[f"worker-{name}"]["served_model_name"] for name in ("a", "b")} == {"a": "a", "b": "b"}
    assert len(files["gateway"]["worker_dns"]) == 2
