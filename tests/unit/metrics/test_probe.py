"""The probe program against a real server, with and without TLS."""

from __future__ import annotations

import asyncio
import dataclasses
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from services.common.probe import main
from services.common.server import ServiceHost
from services.common.server_config import ServerConfig

NAME = "headrace.tokenizer.v1.Tokenizer"


def certificate(folder: Path) -> dict[str, str]:
    """A self-signed certificate for `inside`, which is its own authority."""
    key, cert = folder / "tls.key", folder / "tls.crt"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=inside", "-addext", "subjectAltName=DNS:inside", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    return {"tls_cert": str(cert), "tls_key": str(key), "tls_ca": str(cert), "tls_server_name": "inside"}


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
async def served(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[ServiceHost, list[str]]]:
    trust = certificate(tmp_path) if request.param else {}
    host = ServiceHost(dataclasses.replace(ServerConfig(metrics_port=-2), **cast(Any, trust)), [NAME])
    await host.start()
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({"host": "0.0.0.0", "port": host.port, "model_path": "not the probe's business", **trust}))
    yield host, ["--config", str(file)]
    await host.server.stop(None)


async def test_it_tells_alive_from_ready(served: tuple[ServiceHost, list[str]]) -> None:
    host, arguments = served
    ready = [*arguments, "--service", NAME]
    assert await asyncio.to_thread(main, arguments) == 0
    assert await asyncio.to_thread(main, ready) == 1
    await host.set_ready(True)
    assert await asyncio.to_thread(main, ready) == 0
    assert await asyncio.to_thread(main, [*arguments, "--service", "nope"]) == 1


async def test_nobody_there_is_not_healthy(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("port: 1\n")
    assert await asyncio.to_thread(main, ["--config", str(file), "--timeout", "0.5"]) == 1
