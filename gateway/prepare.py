"""From a request to token ids and the limits that follow from them."""

from __future__ import annotations

import json

from gateway.clients.tokenizer import TokenizerClient
from gateway.flight.flight import Flight
from gateway.flight.spec import ChatPrompt, GenerateSpec, IdsPrompt, TextPrompt
from gateway.models import ModelCatalog, ModelLimits
from gateway.parsing.reasoning.beginning import at_end_of, in_text
from services.common.errors import ContextLengthExceeded, InvalidRequest


class Preparer:
    """Encodes prompts and checks what only token counts can tell."""

    def __init__(self, tokenizer: TokenizerClient, models: ModelCatalog) -> None:
        self._tokenizer = tokenizer
        self._models = models

    async def prepare(self, flight: Flight) -> None:
        """Fill in the flight's prompt ids, its room for output and the ids its parsers ask for."""
        spec = flight.spec
        model = self._models.resolve(spec.model)
        limits = self._models.limits(model)
        flight.prompt_ids = await self._encode(spec, model, flight.remaining_s())
        _check_ids(spec, flight.prompt_ids, limits)
        flight.max_new_tokens = _room(spec, len(flight.prompt_ids), limits)
        await self._special(flight, model)

    async def _encode(self, spec: GenerateSpec, model: str, timeout_s: float | None) -> list[int]:
        prompt, request_id = spec.prompt, spec.request_id
        if isinstance(prompt, IdsPrompt):
            return list(prompt.token_ids)
        if isinstance(prompt, TextPrompt):
            [ids] = await self._tokenizer.encode(
                model, [prompt.text], add_special=prompt.add_special, request_id=request_id, timeout_s=timeout_s
            )
            return ids
        return await self._tokenizer.render_chat(model, prompt, request_id=request_id, timeout_s=timeout_s)

    async def _special(self, flight: Flight, model: str) -> None:
        keep, thought = flight.spec.stops.keep_special_tokens, flight.spec.thought
        if not keep and thought is None:
            return
        known = (await self._tokenizer.info(model, timeout_s=flight.remaining_s())).special_tokens
        flight.keep_special_ids = tuple(known[text] for text in keep if text in known)
        if thought is None:
            return
        begin, end = [[known[tag]] if tag in known else await self._tag_ids(flight, model, tag) for tag in (thought.begin, thought.end)]
        flight.thought_end_id = end[0] if len(end) == 1 else None
        prompt = flight.spec.prompt
        if isinstance(prompt, ChatPrompt) and prompt.continue_final_message:
            flight.thought_at = in_text(json.loads(prompt.messages_json)[-1]["content"], thought)
        else:
            flight.thought_at = at_end_of(flight.prompt_ids, thought, begin, end)
        if flight.spec.constraint is not None and (flight.thought_at == "inside" or (flight.thought_at == "maybe" and thought.awaited)):
            flight.begin_after_ids = tuple(end)
            flight.opening_ids = tuple(begin) if flight.thought_at == "maybe" else ()

    async def _tag_ids(self, flight: Flight, model: str, tag: str) -> list[int]:
        spec = flight.spec
        [ids] = await self._tokenizer.encode(model, [tag], add_special=False, request_id=spec.request_id, timeout_s=flight.remaining_s())
        return ids


def _prompt_field(spec: GenerateSpec) -> str:
    return "messages" if isinstance(spec.prompt, ChatPrompt) else spec.prompt_field


def _check_ids(spec: GenerateSpec, ids: list[int], limits: ModelLimits) -> None:
    field = _prompt_field(spec)
    if not ids:
        raise InvalidRequest(f"{field} has no tokens", field=field)
    if not limits.vocab_size:
        return
    if max(ids) >= limits.vocab_size:
        place = next(i for i, token in enumerate(ids) if token >= limits.vocab_size)
        message = f"{field}[{place}] is {ids[place]}, the vocabulary has {limits.vocab_size} tokens"
        raise InvalidRequest(message, field=field)
    for name, tokens in (("logit_bias", [t for t, _ in spec.sampling.logit_bias]), ("stop_token_ids", spec.stops.token_ids)):
        for token in tokens:
            if token >= limits.vocab_size:
                raise InvalidRequest(f"{name}: {token} is not a token, the vocabulary has {limits.vocab_size}", field=name)
    start = spec.logprobs.prompt_from if spec.logprobs is not None else None
    if start is not None and start >= len(ids):
        message = f"logprob_start_len is {start}, {field} has {len(ids)} tokens"
        raise InvalidRequest(message, field="logprob_start_len")
    if spec.logprobs is not None and any(token >= limits.vocab_size for token in spec.logprobs.ids):
        raise InvalidRequest(f"token_ids_logprob: the vocabulary has {limits.vocab_size} tokens", field="token_ids_logprob")


def _room(spec: GenerateSpec, prompt: int, limits: ModelLimits) -> int:
    """Tokens the answer may have. A limit that was asked for is kept or refused, never cut."""
    field, asked, default = _prompt_field(spec), spec.stops.max_new_tokens, spec.stops.default_max_new_tokens
    if not limits.room:
        return asked or default or 1
    left = limits.room - prompt
    if left < 1:
        message = f"the {limits.bound_by} is {limits.room} tokens, {field} has {prompt} and needs room for at least one more"
        raise ContextLengthExceeded(message, field=field)
    if asked is not None and asked > left:
        message = (
            f"the {limits.bound_by} is {limits.room} tokens; {prompt + asked} were requested ({prompt} in {field}, {asked} for the answer)"
        )
        raise ContextLengthExceeded(message, field=field)
    if asked is not None:
        return asked
    return left if default is None else min(default, left)
