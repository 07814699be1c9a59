"""Sampling parameters, stops and grammars: one set of names and ranges for every door."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

import re2

from gateway.api.schema.limits import Defaults
from gateway.api.schema.reader import Fields, shown
from gateway.flight.spec import Constraint, ConstraintKind, Sampling, Stops
from services.common.errors import InvalidRequest
from services.common.text.stop_set import compile_stops

MAX_TOKENS = 1 << 30
_TOKEN_ID = re.compile("0|[1-9][0-9]{0,9}")
SEED_LOW, SEED_HIGH = -(1 << 63), (1 << 64) - 1

REFUSED: Mapping[str, str] = {
    "best_of": "generating more answers than are returned is not offered",
    "use_beam_search": "beam search is not offered",
    "beam_width": "beam search is not offered",
    "length_penalty": "beam search is not offered",
    "early_stopping": "beam search is not offered",
    "bad_words": "use logit_bias",
    "allowed_token_ids": "use logit_bias, a grammar or custom_logit_processor allowed_token_ids",
    "logits_processors": "use custom_logit_processor, which names a processor of the worker",
    "truncate_prompt_tokens": "prompts are never cut",
    "lora_path": "adapters are not offered",
    "session_params": "sessions are not offered",
    "image_data": "only text is served",
    "audio_data": "only text is served",
    "video_data": "only text is served",
    "input_embeds": "prompts are text or token ids",
    "return_hidden_states": "hidden states are not offered",
    "prompt_embeds": "prompts are text or token ids",
    "mm_processor_kwargs": "only text is served",
    "guided_whitespace_pattern": "white space in JSON is a choice of the operator",
    "thinking_token_budget": "use custom_logit_processor thinking_budget, if the worker has it on",
    "return_tokens_as_token_ids": "use /generate, which returns ids beside the text",
    "return_token_ids": "use /generate, which returns ids beside the text",
}


def refuse_unsupported(fields: Fields, refused: Mapping[str, str]) -> None:
    """400 for a field that would change the answer and is not honoured. null, false and empty values pass."""
    for name, why in refused.items():
        value = fields.values.get(name)
        if value is not None and value is not False and value != [] and value != {} and value != "":
            raise InvalidRequest(f"{fields.path(name)} is not supported: {why}", field=fields.path(name))


def read_sampling(fields: Fields, defaults: Defaults) -> Sampling:
    """How tokens are drawn."""
    d = defaults.sampling
    top_k, seed = fields.integer("top_k", -1, MAX_TOKENS), _seed(fields)
    if top_k == 0:
        raise fields.bad("top_k", "-1 or at least 1")
    return Sampling(
        temperature=fields.number("temperature", d.temperature, 0, 2),
        top_p=fields.number("top_p", d.top_p, 0, 1, open_low=True),
        top_k=d.top_k if top_k is None else top_k,
        min_p=fields.number("min_p", d.min_p, 0, 1),
        frequency_penalty=fields.number("frequency_penalty", 0, -2, 2),
        presence_penalty=fields.number("presence_penalty", 0, -2, 2),
        repetition_penalty=fields.number("repetition_penalty", d.repetition_penalty, 0, 2, open_low=True),
        logit_bias=_logit_bias(fields, defaults.limits.max_logit_bias),
        seed=d.seed if seed is None else seed,
    )


def _seed(fields: Fields) -> int | None:
    first = fields.integer("seed", SEED_LOW, SEED_HIGH)
    second = fields.integer("sampling_seed", SEED_LOW, SEED_HIGH)
    return second if first is None else first


def _logit_bias(fields: Fields, most: int) -> tuple[tuple[int, float], ...]:
    given = fields.object("logit_bias")
    if not given:
        return ()
    name = fields.path("logit_bias")
    if len(given) > most:
        raise InvalidRequest(f"{name} may have {most} entries, it has {len(given)}", field=name)
    biases = []
    for key, value in given.items():
        if not _TOKEN_ID.fullmatch(key) or int(key) >= 1 << 32:
            raise InvalidRequest(f"{name}: {shown(key)} is not a token id", field=name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not -100 <= value <= 100:
            raise InvalidRequest(f"{name}[{key}] must be a number in [-100, 100], not {shown(value)}", field=name)
        biases.append((int(key), float(value)))
    return tuple(sorted(biases))


def read_stops(fields: Fields, defaults: Defaults, *, max_names: Sequence[str], default_max: int | None) -> Stops:
    """When an answer ends. The first of `max_names` that is given is the limit of new tokens."""
    limits = defaults.limits
    given = [fields.integer(name, 1, MAX_TOKENS) for name in max_names]
    most = next((value for value in given if value is not None), None)
    minimum = next((v for v in (fields.integer(n, 0, MAX_TOKENS) for n in ("min_new_tokens", "min_tokens")) if v is not None), 0)
    if most is not None and minimum > most:
        name = fields.path("min_new_tokens" if fields.has("min_new_tokens") else "min_tokens")
        raise InvalidRequest(f"{name} is {minimum}, more than the limit of {most} new tokens", field=name)
    regexes = fields.strings("stop_regex", most=limits.max_stops, longest=limits.max_regex_chars)
    _check_regexes(regexes, fields.path("stop_regex"))
    return Stops(
        max_new_tokens=most,
        default_max_new_tokens=default_max,
        min_new_tokens=minimum,
        strings=fields.strings("stop", most=limits.max_stops, longest=limits.max_stop_chars),
        regexes=regexes,
        token_ids=fields.token_ids("stop_token_ids", most=limits.max_logit_bias),
        ignore_eos=fields.boolean("ignore_eos", False),
        keep_stop=fields.boolean("no_stop_trim", False) or fields.boolean("include_stop_str_in_output", False),
        skip_special_tokens=fields.boolean("skip_special_tokens", True),
        spaces_between_special=fields.boolean("spaces_between_special_tokens", False),
    )


def _check_regexes(regexes: Sequence[str], field: str) -> None:
    """By the library that will follow them in the worker: what it refuses would come back under the worker's name for it."""
    try:
        compile_stops((), regexes, regexes_field=field)
    except InvalidRequest as error:
        raise InvalidRequest(error.message, field=field) from error


_ALIASES: Mapping[str, str] = {"guided_json": "json_schema", "guided_regex": "regex", "guided_grammar": "ebnf"}


def read_constraint(fields: Fields, defaults: Defaults) -> Constraint | None:
    """The grammar of the answer; two at once are refused. Schemas and tags may be objects or JSON text."""
    found: list[tuple[str, Constraint]] = []
    for name in (*get_args(ConstraintKind), *_ALIASES):
        if fields.has(name):
            kind = _ALIASES.get(name, name)
            found.append((name, Constraint(cast(ConstraintKind, kind), _grammar_text(fields, name, kind), field=fields.path(name))))
    if fields.has("guided_choice"):
        found.append(("guided_choice", Constraint("regex", _choices(fields, "guided_choice"), field=fields.path("guided_choice"))))
    if fields.has("structured_outputs"):
        inner = _structured_outputs(fields)
        found += [("structured_outputs", inner)] if inner is not None else []
    if len(found) > 1:
        first, second = (fields.path(name) for name, _ in found[:2])
        raise InvalidRequest(f"{first} and {second} exclude each other", field=second)
    if not found:
        return None
    [(_, constraint)] = found
    check_grammar(constraint.text, constraint.field, defaults.limits.max_grammar_chars)
    return constraint


_STRUCTURED: Mapping[str, ConstraintKind] = {
    "json": "json_schema", "json_object": "json_schema", "regex": "regex", "choice": "regex", "grammar": "ebnf",
    "structural_tag": "structural_tag",
}  # fmt: skip


def _structured_outputs(fields: Fields) -> Constraint | None:
    """vLLM's object of one grammar."""
    inner = Fields(fields.object("structured_outputs") or {}, fields.path("structured_outputs"))
    given = [name for name in inner.values if inner.has(name) and inner.values[name] is not False]
    strange = [name for name in given if name not in _STRUCTURED]
    if strange:
        raise InvalidRequest(f"{inner.path(strange[0])} is not supported; {', '.join(_STRUCTURED)} are", field=inner.path(strange[0]))
    if len(given) > 1:
        raise InvalidRequest(f"{inner.path(given[0])} and {inner.path(given[1])} exclude each other", field=inner.path(given[1]))
    if not given:
        return None
    [name] = given
    kind = _STRUCTURED[name]
    if name == "json_object":
        text = '{"type": "object"}' if inner.boolean(name, False) else ""
    else:
        text = _choices(inner, name) if name == "choice" else _grammar_text(inner, name, kind)
    return Constraint(kind, text, field=inner.path(name))


def _choices(fields: Fields, name: str) -> str:
    """The expression of an answer that is one of the texts, bare."""
    texts = fields.array(name)
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise fields.bad(name, "an array of strings that are not empty")
    for text in texts:
        fields.check_text(name, text)
    return "|".join(re2.escape(text) for text in dict.fromkeys(texts))


def _grammar_text(fields: Fields, name: str, kind: str) -> str:
    value: Any = fields.values[name]
    if kind in ("json_schema", "structural_tag") and isinstance(value, dict | bool):
        return json.dumps(value, ensure_ascii=False)
    text = fields.string(name)
    if kind in ("json_schema", "structural_tag"):
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidRequest(f"{fields.path(name)} is not JSON: {error}", field=fields.path(name)) from error
        if not isinstance(parsed, dict | bool):
            raise fields.bad(name, "a JSON object")
    return text


def check_grammar(text: str, field: str, most: int) -> None:
    """Refuse an empty grammar and one that is too long."""
    if not text:
        raise InvalidRequest(f"{field} may not be empty", field=field)
    if len(text) > most:
        raise InvalidRequest(f"{field} may have {most} characters, it has {len(text)}", field=field)
