"""The few HTTP calls the launcher makes to its own gateway, with the standard library alone."""

from __future__ import annotations

import http.client
import json
import ssl
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """Status 0 means nobody listens there yet."""

    status: int
    body: str

    def json(self) -> Any:
        return json.loads(self.body)


def call(
    host: str, port: int, method: str, path: str, body: Any = None, *, timeout_s: float = 10.0, api_key: str = "", tls: bool = False
) -> Answer:
    """One request; blocks, so run it in a thread. With `tls` the certificate is not checked: the server is our own child."""
    if tls:
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=_trusting())
    else:
        connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    headers = {"Content-Type": "application/json"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        return Answer(response.status, response.read().decode(errors="replace"))
    except (OSError, http.client.HTTPException) as error:
        return Answer(0, str(error))
    finally:
        connection.close()


def _trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
