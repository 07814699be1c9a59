"""Parts of a request that all JSON doors share: model, id, priority, cache keys, deadline."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.api.schema.limits import Defaults
from gateway.api.schema.reader import Fields, shown
from services.common.errors import InvalidRequest

LONGEST_ID = 256
_PRIORITY = 1 << 30
_LONGEST_KEY = 1024


@dataclass(frozen=True, slots=True)
class Envelope:
    """What surrounds a prompt."""

    model: str
    request_id: str
    priority: int | None
    extra_key: str
    cache_salt: str
    routing_key: str
    timeout_s: float | None
    stream_interval: int


def read_envelope(fields: Fields, defaults: Defaults) -> Envelope:
    """Read it; the request id is the client's `rid`, else the one of the HTTP request."""
    timeout = fields.number("timeout", 0, 0, 1e7)
    limits = [t for t in (timeout, defaults.timeout_s) if t]
    return Envelope(
        model=fields.string("model", longest=_LONGEST_KEY) or defaults.model,
        request_id=read_rid(fields.values.get("rid")) or defaults.request_id,
        priority=fields.integer("priority", -_PRIORITY, _PRIORITY),
        extra_key=fields.string("extra_key", longest=_LONGEST_KEY),
        cache_salt=fields.string("cache_salt", longest=_LONGEST_KEY) + defaults.cache_salt,
        routing_key=fields.string("routing_key", longest=_LONGEST_KEY) or defaults.routing_key,
        timeout_s=min(limits) if limits else None,
        stream_interval=fields.integer("stream_interval", 1, 1 << 20) or 1,
    )


def read_rid(value: object) -> str:
    """A request id a client chose: printable, not too long. Empty where it chose none."""
    if value is None:
        return ""
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_ID or not value.isprintable():
        raise InvalidRequest(f"rid must be a printable string of at most {LONGEST_ID} characters, not {shown(value)}", field="rid")
    return value
