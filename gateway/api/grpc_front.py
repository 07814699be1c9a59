"""The public gRPC door: the same requests, checks and pipeline as REST."""

from __future__ import annotations

import grpc

from gateway.api.doors import Doors
from protos.gateway.v1 import gateway_pb2_grpc as pb_grpc


class GatewayFront(pb_grpc.GatewayServicer):
    """headrace.gateway.v1.Gateway."""

    def __init__(self, doors: Doors) -> None:
        self._doors = doors

    def register(self, server: grpc.aio.Server) -> None:
        """Serve calls of this server."""
        pb_grpc.add_GatewayServicer_to_server(self, server)  # type: ignore[no-untyped-call]
