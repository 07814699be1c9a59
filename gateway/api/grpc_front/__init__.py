"""The public gRPC door: the same requests, checks and pipeline as REST."""

from gateway.api.grpc_front.front import GatewayFront

__all__ = ["GatewayFront"]
