"""The REST door."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import httpx


class ClientError(Exception):
    """The server refused or failed a request. `status` is 0 if it could not be reached."""

    def __init__(self, status: int, message: str, code: str = "") -> None:
        super().__init__(f"{status}: {message}" if status else message)
        self.status, self.message, self.code = status, message, code


@dataclass(frozen=True, slots=True)
class Generation:
    """An answer of the native door; `meta` is its meta_info."""

    text: str
    output_ids: tuple[int, ...]
    meta: dict[str, Any]

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that were not computed again."""
        return int(self.meta.get("cached_tokens", 0))

    @property
    def finish_type(self) -> str:
        """stop, length or abort."""
        return str((self.meta.get("finish_reason") or {}).get("type", ""))


class Client:
    """Blocking; one instance may be used by many threads."""

    def __init__(self, base_url: str = "http://127.0.0.1:30000", *, api_key: str = "", timeout_s: float = 600.0) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self._http = httpx.Client(base_url=base_url, headers=headers, timeout=timeout_s, limits=limits)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def generate(self, prompt: str | Sequence[int], **sampling: Any) -> Generation:
        """One answer of POST /generate. A prompt is text or token ids; `sampling` are its sampling_params."""
        body = {"text" if isinstance(prompt, str) else "input_ids": prompt if isinstance(prompt, str) else list(prompt)}
        answer = self.call("POST", "/generate", {**body, "sampling_params": sampling})
        return Generation(str(answer["text"]), tuple(answer.get("output_ids") or ()), dict(answer.get("meta_info") or {}))

    def chat(self, messages: Sequence[dict[str, Any]], *, model: str = "", **fields: Any) -> str:
        """The content of one chat completion."""
        answer = self.call("POST", "/v1/chat/completions", {"model": model or self.models()[0], "messages": list(messages), **fields})
        return str(answer["choices"][0]["message"]["content"] or "")

    def stream_chat(self, messages: Sequence[dict[str, Any]], *, model: str = "", **fields: Any) -> Iterator[str]:
        """The content of a chat completion, piece by piece."""
        body = {"model": model or self.models()[0], "messages": list(messages), "stream": True, **fields}
        try:
            with self._http.stream("POST", "/v1/chat/completions", json=body) as response:
                if response.status_code != 200:
                    response.read()
                    raise _error(response)
                for line in response.iter_lines():
                    if line.startswith("data: ") and line != "data: [DONE]":
                        yield from _pieces(json.loads(line[6:]))
        except httpx.HTTPError as error:
            raise ClientError(0, f"{type(error).__name__}: {error}") from error

    def models(self) -> list[str]:
        """Names of the models that are served."""
        return [str(model["id"]) for model in self.call("GET", "/v1/models")["data"]]

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Any JSON request of the door. Raises ClientError."""
        try:
            response = self._http.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise ClientError(0, f"{type(error).__name__}: {error}") from error
        if response.status_code >= 400:
            raise _error(response)
        return response.json() if response.headers.get("content-type", "").startswith("application/json") else response.text


def _pieces(event: dict[str, Any]) -> Iterator[str]:
    if "error" in event:
        error = event["error"]
        raise ClientError(int(error.get("code") or 500) if str(error.get("code", "")).isdigit() else 500, str(error.get("message", error)))
    for choice in event.get("choices") or []:
        if content := (choice.get("delta") or {}).get("content"):
            yield str(content)


def _error(response: httpx.Response) -> ClientError:
    try:
        error = response.json().get("error", {})
        return ClientError(response.status_code, str(error.get("message", response.text)), str(error.get("code") or ""))
    except (ValueError, AttributeError):
        return ClientError(response.status_code, response.text[:400])
