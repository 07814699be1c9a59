"""Client channels with the suite's options, trust and token."""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from services.common.grpc_options import CHANNEL_OPTIONS
from services.common.server_config import ServerConfig
from services.common.trust import channel_credentials, read_token


def open_channel(target: str, trust: ServerConfig | None = None, *, options: Sequence[tuple[str, str | int]] = ()) -> grpc.aio.Channel:
    """A channel to `host:port` (or `dns:///…`). `trust` supplies TLS material; see `call_metadata` for the token."""
    all_options = [*CHANNEL_OPTIONS, *options]
    credentials = channel_credentials(trust) if trust is not None else None
    if credentials is None:
        return grpc.aio.insecure_channel(target, options=all_options)
    if trust is not None and trust.tls_server_name:
        all_options.append(("grpc.ssl_target_name_override", trust.tls_server_name))
    return grpc.aio.secure_channel(target, credentials, options=all_options)


def call_metadata(trust: ServerConfig | None, request_id: str | None = None) -> tuple[tuple[str, str], ...]:
    """Metadata every call carries: the shared token and the request id, where there are any."""
    token = read_token(trust.token_file) if trust is not None else None
    found: list[tuple[str, str]] = []
    if token is not None:
        found.append(("authorization", f"Bearer {token}"))
    if request_id is not None:
        found.append(("x-request-id", request_id))
    return tuple(found)
