"""Asks a server of ours on this machine for its health: `python -m services.common.probe --config FILE [--service NAME]`.

For probes of Kubernetes where links have TLS, which its own gRPC probe does not speak. Exits 0 for SERVING, else 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import grpc
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.common.config import options_of
from services.common.server_config import ServerConfig
from services.common.trust import channel_credentials

_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def check(config: ServerConfig, service: str, timeout: float) -> str:
    """The status the server answers for `service`, or what went wrong."""
    host, port = _ANYWHERE.get(config.host, config.host), config.port
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    credentials = channel_credentials(config)
    options = [("grpc.ssl_target_name_override", config.tls_server_name)] if config.tls_server_name else []
    channel = grpc.insecure_channel(target) if credentials is None else grpc.secure_channel(target, credentials, options)
    with channel:
        request = health_pb2.HealthCheckRequest(service=service)
        try:
            response = health_pb2_grpc.HealthStub(channel).Check(request, timeout=timeout)
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(response.status))


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code of the probe; what the server said goes to standard output."""
    parser = argparse.ArgumentParser(prog="python -m services.common.probe", description=__doc__)
    parser.add_argument("--config", required=True, help="the server's own configuration file")
    parser.add_argument("--service", default="", help="full service name for readiness; empty asks for liveness")
    parser.add_argument("--timeout", type=float, default=2.0, help="seconds to wait for the answer")
    given = parser.parse_args(argv)
    values = yaml.safe_load(Path(given.config).read_text()) or {}
    known = options_of(ServerConfig)
    config = ServerConfig(**{key: value for key, value in values.items() if key in known})
    said = check(config, given.service, given.timeout)
    print(said)
    return 0 if said == "SERVING" else 1


if __name__ == "__main__":
    sys.exit(main())
