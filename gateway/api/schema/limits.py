"""What a request may ask for at most, and what it gets where it does not say."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of every door; each is a flag of the gateway."""

    max_choices: int = 128
    max_logprobs: int = 20
    max_batch: int = 1024
    max_stops: int = 32
    max_stop_chars: int = 1024
    max_regex_chars: int = 256
    max_logit_bias: int = 1024
    max_grammar_chars: int = 65_536
    max_tools: int = 128
    max_messages: int = 4096


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """Values of sampling parameters a request leaves out."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None  # None: a new one for each request


@dataclass(frozen=True, slots=True)
class Defaults:
    """What parsing needs to know besides the body. tenant: whom the request is counted for."""

    model: str
    limits: Limits = Limits()
    sampling: SamplingDefaults = field(default_factory=SamplingDefaults)
    timeout_s: float | None = None
    tenant: str = ""
    cache_salt: str = ""
    routing_key: str = ""
    traceparent: str = ""
    request_id: str = ""
    reasoning_parser: str = ""
    tool_call_parser: str = ""
    usage_by_default: bool = False


def from_generation_config(values: dict[str, object]) -> SamplingDefaults:
    """Defaults a model's generation configuration recommends; values out of range are left out."""

    def number(name: str, default: float, low: float, high: float) -> float:
        value = values.get(name)
        good = isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
        return float(value) if good and isinstance(value, int | float) else default

    if values.get("do_sample") is False:
        return SamplingDefaults()
    top_k = int(number("top_k", -1, 1, 1 << 30))
    return SamplingDefaults(
        temperature=number("temperature", 1.0, 0.0, 2.0),
        top_p=number("top_p", 1.0, 1e-6, 1.0),
        top_k=top_k,
        min_p=number("min_p", 0.0, 0.0, 1.0),
        repetition_penalty=number("repetition_penalty", 1.0, 1e-6, 2.0),
    )
