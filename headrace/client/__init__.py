"""A small Python client for both doors of the gateway.

from headrace.client import Client
with Client("http://127.0.0.1:30000") as client:
    print(client.generate("The capital of France is", max_new_tokens=8).text)
    for piece in client.stream_chat([{"role": "user", "content": "Hello"}]):
        print(piece, end="", flush=True)
"""

from __future__ import annotations

from headrace.client.rest import Client, ClientError, Generation

__all__ = ["Client", "ClientError", "Generation"]
