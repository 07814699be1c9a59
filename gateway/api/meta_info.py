"""`meta_info` of native answers."""

from __future__ import annotations

import time
from typing import Any

from gateway.api.answers import finite
from gateway.api.usage import cached_tokens
from gateway.clients.pieces import PieceTable
from gateway.flight.choice import Choice
from gateway.flight.result import Finish, Reason, TokenLogprob
from gateway.flight.spec import Logprobs


def finish_object(finish: Finish | None) -> dict[str, Any] | None:
    """Why a choice ended, as an object; None while it runs."""
    if finish is None:
        return None
    if finish.reason is Reason.LENGTH:
        return {"type": "length", "length": finish.completion_tokens}
    if finish.reason is Reason.ABORT:
        return {"type": "abort", "message": finish.message or "aborted", "status_code": None, "err_type": None}
    return {"type": finish.reason.value, "matched": finish.matched}


def meta_info(choice: Choice, pieces: PieceTable, *, text_in_logprobs: bool, whole: bool = True) -> dict[str, Any]:
    """All of it; `whole`: for a finished choice, else for a chunk, which has no finish even if one is known."""
    flight = choice.flight
    now = time.monotonic()
    first = choice.first_token_at
    count = len(choice.output_ids)
    spent = choice.last_token_at - first
    cached = choice.cached
    info: dict[str, Any] = {
        "id": flight.spec.request_id,
        "finish_reason": finish_object(choice.finish) if whole else None,
        "prompt_tokens": len(flight.prompt_ids),
        "completion_tokens": count,
        "cached_tokens": cached_tokens(flight),
        "cached_tokens_details": {"device": 0, "host": 0} if cached is None else {"device": cached.device, "host": cached.host},
        "reasoning_tokens": 0,
        "num_retractions": choice.retractions,
        "resumes": flight.resumes,
        "queue_time": choice.queue_s,
        "first_token_latency": first - flight.created if first else None,
        "e2e_latency": now - flight.created,
        "decode_throughput": (count - 1) / spent if count > 1 and spent > 0 else None,
        "dp_rank": None,
        "weight_version": flight.identity.weight_version if flight.identity is not None else "",
    }
    if cached is not None and cached.storage:
        info["cached_tokens_details"]["storage"] = cached.storage
    if flight.spec.logprobs is not None:
        info |= _logprobs(choice, flight.spec.logprobs, pieces if text_in_logprobs else None)
    return info


def _logprobs(choice: Choice, wanted: Logprobs, pieces: PieceTable | None) -> dict[str, Any]:
    """Each entry is [logprob, token id, text or null]."""
    made: dict[str, Any] = {"output_token_logprobs": [_entry(e, pieces) for e in choice.logprobs]}
    prompt = choice.flight.prompt_logprobs
    made["input_token_logprobs"] = [_entry(e, pieces) for e in prompt]
    if wanted.top:
        made["output_top_logprobs"] = [_tops(e, pieces) for e in choice.logprobs]
        made["input_top_logprobs"] = [_tops(e, pieces) for e in prompt]
    if wanted.ids:
        made["output_token_ids_logprobs"] = [_asked(e, wanted, pieces) for e in choice.logprobs]
        made["input_token_ids_logprobs"] = [_asked(e, wanted, pieces) for e in prompt]
    return made


def _text(token: int, pieces: PieceTable | None) -> str | None:
    return None if pieces is None else pieces.text_of(token)


def _entry(entry: TokenLogprob, pieces: PieceTable | None) -> list[Any]:
    return [finite(entry.logprob), entry.token_id, _text(entry.token_id, pieces)]


def _tops(entry: TokenLogprob, pieces: PieceTable | None) -> list[list[Any]] | None:
    return [[finite(value), token, _text(token, pieces)] for token, value in entry.top] or None


def _asked(entry: TokenLogprob, wanted: Logprobs, pieces: PieceTable | None) -> list[list[Any]] | None:
    return [[finite(v), token, _text(token, pieces)] for token, v in zip(wanted.ids, entry.ids, strict=False)] or None
