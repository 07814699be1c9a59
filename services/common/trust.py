"""TLS, mTLS and the shared token on links between services."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc

from services.common.config import ConfigError
from services.common.server_config import ServerConfig

_OPEN_PREFIXES = ("/grpc.health.v1.Health/",)


def _read(path: str, name: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"--{name}: {error}") from error


def read_token(path: str | None) -> str | None:
    """The shared token of a file, or None where no file is set. Raises ConfigError if unreadable or empty."""
    if path is None:
        return None
    token = _read(path, "token-file").decode().strip()
    if not token:
        raise ConfigError(f"--token-file: {path} is empty")
    return token


def server_credentials(config: ServerConfig) -> grpc.ServerCredentials | None:
    """Credentials for a TLS or mTLS server; None for plain text."""
    if config.tls_cert is None and config.tls_key is None:
        return None
    if config.tls_cert is None or config.tls_key is None:
        raise ConfigError("--tls-cert and --tls-key go together")
    ca = _read(config.tls_ca, "tls-ca") if config.tls_ca else None
    pair = (_read(config.tls_key, "tls-key"), _read(config.tls_cert, "tls-cert"))
    return grpc.ssl_server_credentials([pair], root_certificates=ca, require_client_auth=ca is not None)


def channel_credentials(config: ServerConfig) -> grpc.ChannelCredentials | None:
    """Credentials for links this process opens; None for plain text."""
    if config.tls_ca is None:
        return None
    key = _read(config.tls_key, "tls-key") if config.tls_key else None
    cert = _read(config.tls_cert, "tls-cert") if config.tls_cert else None
    return grpc.ssl_channel_credentials(_read(config.tls_ca, "tls-ca"), key, cert)


class TokenInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Refuses calls without the shared token, health checks excepted. Compares in constant time."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any]]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any]:
        """Passes the call on, or answers UNAUTHENTICATED in its place."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or method.startswith(_OPEN_PREFIXES):
            return handler
        given = dict(handler_call_details.invocation_metadata or ()).get("authorization", "")
        raw = given if isinstance(given, bytes) else given.encode()
        if hmac.compare_digest(raw, self._expected):
            return handler
        return _refusal(handler)


def _refusal(handler: Any) -> grpc.RpcMethodHandler[Any, Any]:
    message = "the shared token of links between services is missing or wrong"

    async def refuse_unary(request: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, message)

    async def refuse_stream(request: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, message)
        yield

    makers = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }
    behavior = refuse_stream if handler.response_streaming else refuse_unary
    return makers[handler.request_streaming, handler.response_streaming](
        behavior, handler.request_deserializer, handler.response_serializer
    )
