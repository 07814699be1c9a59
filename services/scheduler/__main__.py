"""`python -m services.scheduler --model-path …`"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from services.common import log as logs
from services.common.config import ConfigError, Sources, load_or_exit
from services.scheduler.config import SchedulerConfig
from services.scheduler.worker import Worker


def main(argv: Sequence[str] | None = None) -> int:
    """Run one worker until it is told to leave; returns the exit code."""
    given = sys.argv[1:] if argv is None else list(argv)
    config, sources = load_or_exit(
        SchedulerConfig, given, prog="headrace serve scheduler", description="Serve a model: token ids in, token ids out."
    )
    logs.setup("scheduler", level=config.log_level, style=config.log_format)
    try:
        return asyncio.run(_serve(config, sources, given))
    except ConfigError as error:
        print(f"headrace serve scheduler: {error}", file=sys.stderr)
        return 2


async def _serve(config: SchedulerConfig, sources: Sources, argv: Sequence[str]) -> int:
    return await Worker(config, sources, argv).run()


if __name__ == "__main__":
    raise SystemExit(main())
