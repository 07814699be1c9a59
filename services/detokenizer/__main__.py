"""`python -m services.detokenizer --model-path FOLDER`: token ids to text, as a gRPC service."""

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
from services.common.text.tokenizer_files import find_tokenizer, load_token_bytes, tokenizer_digest
from services.detokenizer.config import DetokenizerConfig
from services.detokenizer.servicer import SERVICE_NAME, DetokenizerServicer

log = logging.getLogger(__name__)


async def serve(config: DetokenizerConfig) -> int:
    """Run until signalled; returns the exit code. Raises ConfigError or TokenizerUnavailable before it is ready."""
    files = find_tokenizer(config.model_path)
    metrics = Metrics("detokenizer")
    host = ServiceHost(config, [SERVICE_NAME], metrics=metrics)
    tokens, digest = load_token_bytes(files), tokenizer_digest(files)
    servicer = DetokenizerServicer(config, tokens, digest, metrics)
    servicer.register(host.server)
    await host.start()
    log.info("loaded", extra={"model": config.model_name, "tokens": tokens.vocab_size, "digest": digest, "max_states": config.max_states})
    gc.collect()
    gc.freeze()
    await host.set_ready(True)
    return await host.run(servicer.drain)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the program."""
    config, _ = load_or_exit(DetokenizerConfig, argv, prog="headrace serve detokenizer", description="Token ids to text.")
    logs.setup("detokenizer", level=config.log_level, style=config.log_format)
    try:
        if not config.model_path:
            raise ConfigError("--model-path: give the model's folder")
        return asyncio.run(serve(config))
    except (ConfigError, TokenizerUnavailable) as error:
        print(f"detokenizer: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1


if __name__ == "__main__":
    raise SystemExit(main())
