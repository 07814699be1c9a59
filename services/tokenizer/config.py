"""Settings of the tokenizer."""

from __future__ import annotations

from dataclasses import dataclass

from services.common.config import at_least, option
from services.common.server_config import ServerConfig

DEFAULT_PORT = 30010


@dataclass(frozen=True)
class TokenizerConfig(ServerConfig):
    """What to encode with, and how much at once."""

    port: int = option(DEFAULT_PORT, "port of the gRPC server; 0 takes a free one", group="Network", check=at_least(0))
    model_path: str = option("", "folder of the model, or its tokenizer.json or sentencepiece model", group="Model")
    served_model_name: str = option("", "name reported to clients; empty is the model path as given", group="Model")
    chat_template: str | None = option(None, "file with a Jinja template to use in place of the model's own", group="Model")
    allow_request_chat_template: bool = option(
        False, "accept a template in a request; it runs in a sandbox, but costs what its author wants up to the time limit", group="Model"
    )
    max_text_bytes: int = option(16 * 1024 * 1024, "most bytes of one text", group="Limits", unit="bytes", check=at_least(1))
    max_batch: int = option(1024, "most texts of one call", group="Limits", check=at_least(1))
    max_queued_texts: int = option(20_000, "most texts waiting for a thread; more are refused", group="Limits", check=at_least(1))
    max_template_seconds: float = option(5.0, "longest rendering of one chat", group="Limits", unit="s", check=at_least(0.001))
    tokenizer_threads: int = option(2, "threads that encode texts too long for a batch", group="Batching", check=at_least(1))
    enable_dynamic_batch_tokenizer: bool = option(
        True, "encode short texts of concurrent calls together while earlier ones are being encoded", group="Batching"
    )
    dynamic_batch_tokenizer_batch_size: int = option(32, "most calls encoded together", group="Batching", check=at_least(1))
    dynamic_batch_tokenizer_batch_timeout: float = option(
        0.0, "time to wait for more calls while the encoder is idle", group="Batching", unit="s", check=at_least(0)
    )

    @property
    def model_name(self) -> str:
        """The name reported to clients."""
        return self.served_model_name or self.model_path
