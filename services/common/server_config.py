"""Settings every server of the suite has."""

from __future__ import annotations

from dataclasses import dataclass

from services.common.config import at_least, option


@dataclass(frozen=True)
class ServerConfig:
    """Where a server listens, whom it trusts, how it logs and how it leaves."""

    host: str = option("127.0.0.1", "address to bind", group="Network")
    port: int = option(0, "port of the gRPC server; 0 takes a free one", group="Network", check=at_least(0))
    metrics_port: int = option(-1, "port of /metrics; -1 is port + 1000, 0 takes a free one, -2 turns it off", group="Network")
    tls_cert: str | None = option(None, "PEM file with this server's certificate chain", group="Trust")
    tls_key: str | None = option(None, "PEM file with this server's private key", group="Trust")
    tls_ca: str | None = option(None, "PEM file with the authorities peers are signed by; on a server it demands mTLS", group="Trust")
    tls_server_name: str | None = option(
        None, "name that the certificates of all peers carry, where addresses are not names", group="Trust"
    )
    token_file: str | None = option(None, "file with the shared token that links between services carry", group="Trust")
    drain_timeout: float = option(60.0, "time a signalled process gives running work", unit="s", group="Lifecycle", check=at_least(0))
    force_shutdown: bool = option(False, "on a signal end at once instead of draining", group="Lifecycle")
    parent_pipe: int = option(-1, "file descriptor that closes when the parent dies; then leave within seconds", group="Lifecycle")
    log_level: str = option("info", "least severity logged", choices=("debug", "info", "warning", "error"), group="Logging")
    log_format: str = option("text", "one line per event, as text or JSON", choices=("text", "json"), group="Logging")
