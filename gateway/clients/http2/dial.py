"""Opening connections: addresses, names, TLS."""

from __future__ import annotations

import asyncio
import ssl

from gateway.clients.http2.connection import Connection
from services.common.config import ConfigError
from services.common.errors import Unavailable
from services.common.server_config import ServerConfig


async def dial(address: str, trust: ServerConfig | None, *, timeout_s: float, name: str = "") -> Connection:
    """A connection to `host:port`. Under TLS the peer must prove to be `name`, by default the host.

    Raises Unavailable where nobody answers in time, or not as one that is trusted.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    context = client_tls(trust)
    name = (trust.tls_server_name if trust is not None else None) or name or host
    authority = address if name == host else name
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            _, connection = await loop.create_connection(
                lambda: Connection(authority, "http" if context is None else "https"),
                host,
                int(port),
                ssl=context,
                server_hostname=name if context is not None else None,
            )
    except TimeoutError as error:
        raise Unavailable(f"no connection to {address} within {timeout_s:g} s") from error
    except (OSError, ValueError) as error:
        raise Unavailable(f"no connection to {address}: {error}") from error
    return connection


def client_tls(trust: ServerConfig | None) -> ssl.SSLContext | None:
    """What links of this process use; None for plain text. Raises ConfigError for files that cannot be used."""
    if trust is None or trust.tls_ca is None:
        return None
    try:
        context = ssl.create_default_context(cafile=trust.tls_ca)
        if trust.tls_cert is not None and trust.tls_key is not None:
            context.load_cert_chain(trust.tls_cert, trust.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"--tls-ca, --tls-cert: {error}") from error
    context.set_alpn_protocols(["h2"])
    return context
