"""TLS as the chart sets it up: client certificates between services, HTTPS at the gateway, and strangers kept out."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.helm.certificates import Authority
from tests.helm.chart import render
from tests.helm.processes import Pod, Release
from tests.helm.scripted import expected, write_model

NAME = "headrace.serving.svc"
SETS = (
    "gateway.replicas=1",
    "tokenizer.replicas=1",
    "detokenizer.replicas=1",
    f'secrets.tls={{"name": "link-tls", "serverName": "{NAME}"}}',
    'secrets.linkToken.name="link"',
    'secrets.apiKeys.name="keys"',
)
SERVICES = ("tokenizer", "detokenizer", "worker-smollm2")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def secrets(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("secrets")
    authority.secret(folder / "tls", NAME)
    for path, content in (("link/token", "a shared token"), ("api-keys/api-keys", "sk-one")):
        (folder / path).parent.mkdir()
        (folder / path).write_text(content)
    return folder


@pytest.fixture(scope="module")
def release(secrets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    folder = tmp_path_factory.mktemp("release")
    with Release(render("nothing-values.yaml", *SETS), folder, write_model(folder / "model"), secrets=secrets).running() as started:
        yield started


def completion(gateway: Pod, context: ssl.SSLContext, key: str = "sk-one") -> Any:
    body = json.dumps({"model": "smollm2", "max_tokens": 30, "messages": [{"role": "user", "content": "hi"}]}).encode()
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"https://127.0.0.1:{gateway.config['port']}/v1/chat/completions", body, headers)
    with urllib.request.urlopen(request, timeout=30, context=context) as response:
        return json.load(response)


def trusting(authority: Authority) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    context.check_hostname = False  # it is reached by address here
    return context


def health(pod: Pod, credentials: grpc.ChannelCredentials) -> int:
    """SERVING and so on; -1 where no connection is made."""
    options = [("grpc.ssl_target_name_override", NAME)]
    with grpc.secure_channel(f"127.0.0.1:{pod.config['port']}", credentials, options) as channel:
        try:
            return int(health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=3).status)
        except grpc.RpcError as error:
            assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
            return -1


def test_an_answer_over_https_passes_links_with_certificates(release: Release, authority: Authority) -> None:
    answer = completion(release.pods["gateway"][0], trusting(authority))
    assert answer["choices"][0]["message"]["content"] == expected(30)


def test_helm_test_makes_its_completion_over_https_with_a_key(release: Release) -> None:
    done = release.helm_test(render("nothing-values.yaml", *SETS))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["usage"]["completion_tokens"] == 4


def test_the_rendered_probes_ask_over_tls(release: Release) -> None:
    for pod in release.all():
        for kind in ("startup", "readiness", "liveness"):
            assert pod.probe(kind), (pod.component, kind)
    assert "exec" in release.pods["worker-smollm2"][0].container["readinessProbe"]
    assert release.pods["gateway"][0].container["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"


def test_a_client_checks_the_gateways_certificate(release: Release, authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path)
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        completion(release.pods["gateway"][0], trusting(stranger))
    with pytest.raises(urllib.error.HTTPError) as wrong:
        completion(release.pods["gateway"][0], trusting(authority), key="sk-two")
    assert wrong.value.code == 401


def test_the_gateway_speaks_no_plain_http(release: Release) -> None:
    with pytest.raises((urllib.error.URLError, OSError)):
        urllib.request.urlopen(f"http://127.0.0.1:{release.pods['gateway'][0].config['port']}/health", timeout=5)


@pytest.mark.parametrize("component", SERVICES)
def test_a_service_takes_only_peers_of_its_authority(
    release: Release, authority: Authority, secrets: Path, tmp_path: Path, component: str
) -> None:
    pod, root = release.pods[component][0], authority.certificate.read_bytes()

    def pair(folder: Path) -> tuple[bytes, bytes]:
        return (folder / "tls.key").read_bytes(), (folder / "tls.crt").read_bytes()

    ours, strange = secrets / "tls", Authority(tmp_path / "authority").secret(tmp_path / "tls", NAME)
    assert health(pod, grpc.ssl_channel_credentials(root, *pair(ours))) == health_pb2.HealthCheckResponse.SERVING
    assert health(pod, grpc.ssl_channel_credentials(root)) == -1, "no certificate"
    assert health(pod, grpc.ssl_channel_credentials(root, *pair(strange))) == -1, "another authority's"
    with grpc.insecure_channel(f"127.0.0.1:{pod.config['port']}") as plain, pytest.raises(grpc.RpcError):
        health_pb2_grpc.HealthStub(plain).Check(health_pb2.HealthCheckRequest(), timeout=3)
