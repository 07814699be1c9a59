"""`python -m gateway --tokenizer … --detokenizer … --workers …`: the doors of the suite."""

from __future__ import annotations

import contextlib
import resource
import sys
from collections.abc import Sequence

from gateway.config import GatewayConfig
from services.common import log as logs
from services.common.config import ConfigError, Sources, load_or_exit
from services.common.errors import HeadraceError


async def serve(config: GatewayConfig, sources: Sources) -> int:
    """Run until signalled; returns the exit code. Raises ConfigError."""
    from gateway.app import GatewayApp

    app = GatewayApp(config, sources)
    try:
        await app.start()
    except (ConfigError, HeadraceError):
        await app.close()
        raise
    return await app.run()


def allow_many_connections() -> None:
    """As many open files as the system lets this process have: the usual first limit is meant for programs with a few."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the program."""
    config, sources = load_or_exit(GatewayConfig, argv, prog="headrace serve gateway", description="The REST and gRPC doors.")
    logs.setup("gateway", level=config.log_level, style=config.log_format)
    allow_many_connections()
    import uvloop

    try:
        return int(uvloop.run(serve(config, sources)))
    except (ConfigError, HeadraceError) as error:
        print(f"gateway: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
