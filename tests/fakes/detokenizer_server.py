"""The real detokenizer over the byte vocabulary, in this process, with an end that can be sudden."""

from __future__ import annotations

import grpc

from protos.detokenizer.v1 import detokenizer_pb2_grpc as pb_grpc
from services.common.metrics import Metrics
from services.common.text.token_bytes import TokenBytes
from services.detokenizer.config import DetokenizerConfig
from services.detokenizer.servicer import DetokenizerServicer
from tests.fakes import byte_vocabulary as vocabulary


class DetokenizerServer:
    """Start, stop and start again on the same port."""

    def __init__(self, tokens: TokenBytes | None = None, digest: str = vocabulary.DIGEST) -> None:
        self.tokens, self.digest = tokens or vocabulary.token_bytes(), digest
        self.server: grpc.aio.Server | None = None
        self.servicer: DetokenizerServicer | None = None
        self.port = 0

    async def start(self) -> str:
        """Serve; returns the address, which stays the same."""
        self.servicer = DetokenizerServicer(DetokenizerConfig(), self.tokens, self.digest, Metrics("detokenizer"))
        self.server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        pb_grpc.add_DetokenizerServicer_to_server(self.servicer, self.server)  # type: ignore[no-untyped-call]
        self.port = self.server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self.server.start()
        return f"127.0.0.1:{self.port}"

    async def stop(self) -> None:
        """Break all Sessions at once."""
        if self.server is not None:
            await self.server.stop(None)
            self.server = None
