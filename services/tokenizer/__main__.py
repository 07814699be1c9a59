"""`python -m services.tokenizer --model-path FOLDER`: text and chats to token ids, as a gRPC service."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Sequence

from services.common import log as logs
from services.common.config import ConfigError, load_or_exit
from services.common.metrics import Metrics
from services.common.server import ServiceHost
from services.common.text.errors import TokenizerUnavailable
from services.tokenizer.config import TokenizerConfig
from services.tokenizer.model import load_model
from services.tokenizer.servicer import SERVICE_NAME, TokenizerServicer

log = logging.getLogger(__name__)


async def serve(config: TokenizerConfig) -> int:
    """Run until signalled; returns the exit code. Raises ConfigError or TokenizerUnavailable before it is ready."""
    model = load_model(config.model_path, name=config.model_name, chat_template=config.chat_template)
    metrics = Metrics("tokenizer")
    host = ServiceHost(config, [SERVICE_NAME], metrics=metrics)
    servicer = TokenizerServicer(config, model, metrics)
    servicer.register(host.server)
    await host.start()
    template = model.templates.default.origin if model.templates.default is not None else "none"
    log.info("loaded", extra={"model": model.name, "tokens": model.tokens.vocab_size, "digest": model.digest, "chat_template": template})
    gc.collect()
    gc.freeze()
    await host.set_ready(True)
    try:
        return await host.run(servicer.drain)
    finally:
        servicer.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the program."""
    config, _ = load_or_exit(TokenizerConfig, argv, prog="headrace serve tokenizer", description="Text and chats to token ids.")
    logs.setup("tokenizer", level=config.log_level, style=config.log_format)
    try:
        if not config.model_path:
            raise ConfigError("--model-path: give the model's folder")
        return asyncio.run(serve(config))
    except (ConfigError, TokenizerUnavailable) as error:
        print(f"tokenizer: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1


if __name__ == "__main__":
    raise SystemExit(main())
