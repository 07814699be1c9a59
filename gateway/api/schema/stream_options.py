"""`stream` and `stream_options` of the OpenAI doors."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.api.schema.limits import Defaults
from gateway.api.schema.reader import Fields
from services.common.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """on: stream at all. usage: a last chunk with the totals. every: usage so far in each chunk."""

    on: bool
    usage: bool = False
    every: bool = False


def read_stream(fields: Fields, defaults: Defaults) -> StreamOptions:
    """stream_options without stream is refused."""
    on = fields.boolean("stream", False)
    options = fields.object("stream_options")
    if options is None:
        return StreamOptions(on, usage=on and defaults.usage_by_default)
    if not on:
        raise InvalidRequest("stream_options needs stream: true", field="stream_options")
    inner = Fields(options, "stream_options")
    every = inner.boolean("continuous_usage_stats", False)
    inner.boolean("include_obfuscation", False)
    return StreamOptions(True, usage=inner.boolean("include_usage", defaults.usage_by_default), every=every)
