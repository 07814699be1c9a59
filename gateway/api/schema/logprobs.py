"""Which logprobs a request wants, in the spelling of each door."""

from __future__ import annotations

from gateway.api.schema.reader import Fields
from gateway.flight.spec import Logprobs
from services.common.errors import InvalidRequest


def chat_logprobs(fields: Fields, *, most: int) -> Logprobs | None:
    """`logprobs: true`, with `top_logprobs` alternatives each."""
    top = fields.integer("top_logprobs", 0, most)
    if not fields.boolean("logprobs", False):
        if top is not None:
            raise InvalidRequest("top_logprobs needs logprobs: true", field="top_logprobs")
        return None
    return Logprobs(top=top or 0)


def completion_logprobs(fields: Fields, *, most: int, echo: bool) -> Logprobs | None:
    """`logprobs: k`; 0 means the chosen tokens' only. With echo the prompt's too."""
    top = fields.integer("logprobs", 0, most)
    return None if top is None else Logprobs(top=top, prompt_from=0 if echo else None)


def native_logprobs(fields: Fields, *, most: int) -> Logprobs | None:
    """`return_logprob` with `top_logprobs_num`, `token_ids_logprob` and `logprob_start_len` (-1: no prompt logprobs)."""
    top = fields.integer("top_logprobs_num", 0, most) or 0
    ids = fields.token_ids("token_ids_logprob", most=most)
    start = fields.integer("logprob_start_len", -1, 1 << 30)
    if not fields.boolean("return_logprob", False):
        for name, asked in (("top_logprobs_num", top > 0), ("token_ids_logprob", bool(ids)), ("logprob_start_len", (start or -1) >= 0)):
            if asked:
                raise InvalidRequest(f"{fields.path(name)} needs return_logprob: true", field=fields.path(name))
        return None
    prompt_from = None if start is None or start < 0 else start
    return Logprobs(top=top, ids=ids, prompt_from=prompt_from, tempered=fields.boolean("tempered_logprobs", False))
