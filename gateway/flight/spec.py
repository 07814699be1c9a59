"""A validated request, the same for every door. Past `api/` all these values are known to be good."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """Text to be encoded. `add_special` None leaves it to the tokenizer's configuration."""

    text: str
    add_special: bool | None = None


@dataclass(frozen=True, slots=True)
class IdsPrompt:
    """Token ids as they are."""

    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """Messages for the model's chat template. All members but the flags are JSON text."""

    messages_json: str
    tools_json: str = ""
    template_kwargs_json: str = ""
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template: str = ""


Prompt = TextPrompt | IdsPrompt | ChatPrompt


@dataclass(frozen=True, slots=True)
class LogitProcessor:
    """A processor of the worker, by name. params: JSON text of an object, or empty.

    name_field, params_field: the places in the request that they come from.
    """

    name: str
    params: str
    name_field: str
    params_field: str


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is drawn. temperature 0 is greedy; top_k -1 is the whole vocabulary."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int | None = None
    processor: LogitProcessor | None = None


@dataclass(frozen=True, slots=True)
class Stops:
    """When a choice ends. `max_new_tokens` None: all the room that is left, or the door's default."""

    max_new_tokens: int | None = None
    default_max_new_tokens: int | None = None
    min_new_tokens: int = 0
    strings: tuple[str, ...] = ()
    regexes: tuple[str, ...] = ()
    token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    keep_stop: bool = False
    skip_special_tokens: bool = True
    spaces_between_special: bool = False
    keep_special_tokens: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Which logprobs are wanted. top: alternatives per token; ids: further ids; prompt_from: first prompt position."""

    top: int = 0
    ids: tuple[int, ...] = ()
    output: bool = True
    prompt_from: int | None = None
    tempered: bool = False


ThoughtAt = Literal["inside", "maybe", "after"]
"""Where an answer begins: in a thought, whose tag may still come; perhaps with the tag of one; or in the answer proper."""


@dataclass(frozen=True, slots=True)
class Thought:
    """Tags around a thought that may come first. otherwise: where answers begin that no prompt has begun.

    awaited: a thought is expected to come even if nothing has begun it.
    """

    begin: str
    end: str
    otherwise: ThoughtAt
    awaited: bool


ConstraintKind = Literal["json_schema", "regex", "ebnf", "structural_tag"]


@dataclass(frozen=True, slots=True)
class Constraint:
    """A grammar the output must follow; it begins after the thought, if there is one.

    field: the place in the request that it comes from, where that is not called like its kind.
    lenient: what of a schema the worker does not enforce is left out; the answer is checked against all of it.
    """

    kind: ConstraintKind
    text: str
    field: str = ""
    lenient: bool = False


@dataclass(frozen=True, slots=True)
class SchemaCheck:
    """What a finished answer is checked against. answer: schema of all its text, JSON text; calls: of arguments, by function.

    origin: the place in the request that the schemas come from.
    """

    origin: str
    answer: str = ""
    calls: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GenerateSpec:
    """One prompt and `n` answers to it."""

    request_id: str
    model: str
    prompt: Prompt
    n: int = 1
    sampling: Sampling = field(default_factory=Sampling)
    stops: Stops = field(default_factory=Stops)
    logprobs: Logprobs | None = None
    constraint: Constraint | None = None
    check: SchemaCheck | None = None
    thought: Thought | None = None
    stream_interval: int = 1
    priority: int | None = None
    extra_key: str = ""
    cache_salt: str = ""
    routing_key: str = ""
    tenant: str = ""
    traceparent: str = ""
    timeout_s: float | None = None
    prompt_field: str = "prompt"
