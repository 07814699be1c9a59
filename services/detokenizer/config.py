"""Settings of the detokenizer."""

from __future__ import annotations

from dataclasses import dataclass

from services.common.config import at_least, option
from services.common.server_config import ServerConfig

DEFAULT_PORT = 30020


@dataclass(frozen=True)
class DetokenizerConfig(ServerConfig):
    """What to decode with, and how much at once."""

    port: int = option(DEFAULT_PORT, "port of the gRPC server; 0 takes a free one", group="Network", check=at_least(0))
    model_path: str = option("", "folder of the model, or its tokenizer.json or sentencepiece model", group="Model")
    served_model_name: str = option("", "name reported to clients; empty is the model path as given", group="Model")
    max_states: int = option(65_536, "most texts open at once, over all Sessions", group="Limits", check=at_least(1))
    max_batch: int = option(1024, "most sequences of one Detokenize call", group="Limits", check=at_least(1))
    max_backlog_bytes: int = option(
        64 * 1024 * 1024, "a Session whose peer leaves more than this unread is ended", group="Limits", unit="bytes", check=at_least(1)
    )

    @property
    def model_name(self) -> str:
        """The name reported to clients."""
        return self.served_model_name or self.model_path
