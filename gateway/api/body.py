"""Reading a request body: bounded, decompressed, decoded, parsed."""

from __future__ import annotations

import asyncio
import json
import zlib
from typing import Any

from aiohttp import web

from gateway.api.connection import grant_body
from gateway.api.schema.reader import shown
from services.common.errors import InvalidRequest, PayloadTooLarge

_OFF_LOOP_BYTES = 256 * 1024
_PATIENCE_S = 300.0


async def read_json(request: web.Request, limit: int) -> dict[str, Any]:
    """The body as a JSON object. Raises PayloadTooLarge, or InvalidRequest with the place of the mistake."""
    raw = await read_bytes(request, limit)
    value = await asyncio.to_thread(_parse, raw) if len(raw) > _OFF_LOOP_BYTES else _parse(raw)
    if not isinstance(value, dict):
        raise InvalidRequest(f"the body must be a JSON object, not {shown(value)}", field="body")
    return value


async def read_bytes(request: web.Request, limit: int) -> bytes:
    """The body, at most `limit` bytes before and after decompression."""
    if request.content_length is not None and request.content_length > limit:
        raise _too_large(limit)
    unpack = _unpacker(request.headers.get("content-encoding", "").strip().lower())
    await grant_body(request)
    try:
        async with asyncio.timeout(_PATIENCE_S):
            return await _gather(request, unpack, limit)
    except TimeoutError as error:
        raise InvalidRequest(f"the body did not arrive within {_PATIENCE_S:g} s", field="body") from error


async def _gather(request: web.Request, unpack: Any, limit: int) -> bytes:
    parts: list[bytes] = []
    total = received = 0
    async for chunk in request.content.iter_any():
        received += len(chunk)
        if received > limit:
            raise _too_large(limit)
        part = chunk if unpack is None else _inflate(unpack, chunk, limit - total + 1)
        total += len(part)
        if total > limit:
            raise _too_large(limit)
        parts.append(part)
    if unpack is not None and received and not unpack.eof:
        raise InvalidRequest("the compressed body ends too early", field="body")
    return b"".join(parts)


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"the body may have {limit} bytes", field="body", code="payload_too_large")


def _unpacker(encoding: str) -> Any:
    if encoding in ("", "identity"):
        return None
    if encoding in ("gzip", "x-gzip"):
        return zlib.decompressobj(16 + zlib.MAX_WBITS)
    if encoding == "deflate":
        return zlib.decompressobj()
    raise InvalidRequest(f"content-encoding {encoding!r} is not supported; gzip and deflate are", field="content-encoding")


def _inflate(unpack: Any, chunk: bytes, room: int) -> bytes:
    try:
        return bytes(unpack.decompress(chunk, room))
    except zlib.error as error:
        raise InvalidRequest(f"the compressed body is broken: {error}", field="body") from error


def _parse(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the body is not UTF-8: byte {error.start} is {raw[error.start]:#04x}", field="body") from error
    except RecursionError as error:
        raise InvalidRequest("the body is nested too deeply", field="body") from error
    except json.JSONDecodeError as error:
        raise InvalidRequest(f"the body is not JSON: {error}", field="body") from error
    except ValueError as error:
        raise InvalidRequest("a number in the body has too many digits", field="body") from error


def _no_constant(name: str) -> Any:
    raise InvalidRequest(f"the body is not JSON: {name} is no JSON number", field="body")
