"""Every container's command line from the rendered manifests, started as a process, answers the rendered probes."""

from __future__ import annotations

import json
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helm.chart import render
from tests.helm.processes import Release
from tests.helm.prometheus import wait_for
from tests.helm.scripted import expected, write_model


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    folder = tmp_path_factory.mktemp("release")
    manifests = render("nothing-values.yaml", "gateway.replicas=1", "tokenizer.replicas=1", "detokenizer.replicas=1")
    with Release(manifests, folder, write_model(folder / "model")).running() as started:
        yield started


def test_every_probe_answers(release: Release) -> None:
    assert {pod.component for pod in release.all()} == {"gateway", "tokenizer", "detokenizer", "worker-smollm2"}
    for pod in release.all():
        for kind in ("startup", "readiness", "liveness"):
            assert pod.probe(kind), (pod.component, kind)


def test_it_serves(release: Release) -> None:
    gateway = release.pods["gateway"][0]
    body = {"model": "smollm2", "max_tokens": 30, "messages": [{"role": "user", "content": "hi"}]}
    request = urllib.request.Request(
        f"http://127.0.0.1:{gateway.config['port']}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        answer = json.load(response)
    assert answer["choices"][0]["message"]["content"] == expected(30)
    assert answer["usage"]["completion_tokens"] == 30


def test_helm_test_makes_its_completion(release: Release) -> None:
    done = release.helm_test(render("nothing-values.yaml"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["choices"][0]["message"]["content"] == expected(4)


def test_metrics_are_where_the_pod_says(release: Release) -> None:
    for pod in release.all():
        with urllib.request.urlopen(f"http://127.0.0.1:{pod.config['metrics_port']}/metrics", timeout=10) as response:
            text = response.read().decode()
        assert "headrace_ready 1.0" in text or 'headrace_ready{model_name="smollm2"} 1.0' in text, pod.component


def test_a_worker_that_ends_leaves_the_gateway_alive_and_not_ready(release: Release) -> None:
    gateway, worker = release.pods["gateway"][0], release.pods["worker-smollm2"][0]
    worker.stop()
    assert worker.join() == 0
    gateway.wait("readiness", False)
    assert gateway.probe("liveness")
    worker.start()
    worker.wait("readiness")
    gateway.wait("readiness")


@pytest.mark.parametrize("component", ["tokenizer", "detokenizer", "worker-smollm2"])
def test_a_pod_that_cannot_load_ends_at_once_and_says_why(tmp_path: Path, component: str) -> None:
    missing = {"model_path": str(tmp_path / "missing")}
    release = Release(render("nothing-values.yaml"), tmp_path, {component.partition("-")[0]: missing})
    pod = release.pods[component][0]
    pod.start()
    assert pod.join(60) not in (0, None)
    assert str(tmp_path / "missing") in pod.log.read_text()


def test_logs_are_json_lines_without_prompts_or_answers(release: Release) -> None:
    gateway = release.pods["gateway"][0]
    secret = "a sentence nobody else should read"
    body = json.dumps({"text": secret, "sampling_params": {"max_new_tokens": 26}}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{gateway.config['port']}/generate", body, {"content-type": "application/json", "x-request-id": "seen-in-the-log"}
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        assert json.load(response)["text"] == expected(26)
    for pod in release.all():
        text = pod.log.read_text()
        assert secret not in text
        assert expected(26) not in text
        for line in text.splitlines():
            assert line.startswith("{"), (pod.component, text)
            assert {"time", "level", "service", "message"} <= set(json.loads(line)), pod.component
    assert '"request_id": "seen-in-the-log"' in gateway.log.read_text()


def test_one_request_is_found_in_every_log_once_the_level_is_raised_at_run_time(release: Release) -> None:
    gateway = release.pods["gateway"][0]

    def ask(request_id: str) -> None:
        body = json.dumps({"text": "hi", "sampling_params": {"max_new_tokens": 5}}).encode()
        headers = {"content-type": "application/json", "x-request-id": request_id}
        request = urllib.request.Request(f"http://127.0.0.1:{gateway.config['port']}/generate", body, headers)
        with urllib.request.urlopen(request, timeout=30) as response:
            response.read()

    def logs_of(request_id: str) -> set[str]:
        return {pod.component for pod in release.all() if f'"request_id": "{request_id}"' in pod.log.read_text()}

    def switch(number: int, said: str) -> None:
        for pod in release.all():
            before = pod.log.read_text().count(said)
            pod.stop(number)
            wait_for(lambda pod=pod, before=before: pod.log.read_text().count(said) > before, f"{pod.component}: {said}")  # type: ignore[misc]

    ask("before")
    assert logs_of("before") == {"gateway"}
    switch(signal.SIGUSR1, '"to": "debug"')
    ask("meanwhile")
    everywhere = {pod.component for pod in release.all()}
    wait_for(lambda: logs_of("meanwhile") == everywhere, "the request in every log")
    switch(signal.SIGUSR2, '"to": "info"')
    ask("after")
    assert logs_of("after") == {"gateway"}


def test_two_models_are_served_by_name(tmp_path: Path) -> None:
    models = 'models={"a": {"config": {"model_path": "/m/a"}}, "b": {"config": {"model_path": "/m/b"}}}'
    told = ('tokenizer.config.model_path="/m/a"', 'detokenizer.config.model_path="/m/a"')
    one = [f"{name}.replicas=1" for name in ("gateway", "tokenizer", "detokenizer")]
    release = Release(render("nothing-values.yaml", models, *told, *one), tmp_path, write_model(tmp_path / "model"))
    with release.running():
        url = f"http://127.0.0.1:{release.pods['gateway'][0].config['port']}"
        with urllib.request.urlopen(f"{url}/v1/models", timeout=10) as response:
            assert {model["id"] for model in json.load(response)["data"]} == {"a", "b"}
        for model, count in (("a", 3), ("b", 7)):
            body = json.dumps({"model": model, "max_tokens": count, "messages": [{"role": "user", "content": "hi"}]}).encode()
            request = urllib.request.Request(f"{url}/v1/chat/completions", body, {"content-type": "application/json"})
            with urllib.request.urlopen(request, timeout=30) as response:
                assert json.load(response)["model"] == model
            metrics = release.pods[f"worker-{model}"][0].config["metrics_port"]
            with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=10) as response:
                assert f'headrace_worker_generation_tokens_total{{model_name="{model}"}} {count}.0' in response.read().decode()
