"""What a scripted engine plays: token ids, delays, failures and invalid outputs, from JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from services.scheduler.core.plan import IntArray


@dataclass(frozen=True, slots=True)
class Playback:
    """Output of prompts that begin with `prompt_prefix`; without `output`, ids are drawn from the sequence's content.

    After the listed ids comes the first end-of-sequence id for ever, or the list again with `repeat`.
    """

    prompt_prefix: tuple[int, ...] = ()
    output: tuple[int, ...] | None = None
    repeat: bool = False
    invalid_at: int | None = None  # output position whose logits are not finite


@dataclass(frozen=True, slots=True)
class Failure:
    """What goes wrong at launch number `launch`, counted from 1: oom, crash, hang for `seconds`, or corrupt `slot` beforehand."""

    launch: int
    kind: str = "oom"
    seconds: float = 0.0
    slot: int = 1


@dataclass(frozen=True, slots=True)
class Script:
    """The model that is played. Delays are device time: under overlap the caller's work hides behind them."""

    model_name: str = "scripted"
    vocab_size: int = 32000
    context_length: int = 8192
    eos_token_ids: tuple[int, ...] = (2,)
    playbacks: tuple[Playback, ...] = ()
    failures: tuple[Failure, ...] = ()
    step_ms: float = 0.0
    prefill_us_per_token: float = 0.0
    oom_above_tokens: int | None = None  # a step of more new tokens runs out of memory

    def playback_for(self, prompt: IntArray) -> Playback:
        """The first whose prefix the prompt begins with; drawn ids if none does."""
        for playback in self.playbacks:
            prefix = playback.prompt_prefix
            if tuple(prompt[: len(prefix)].tolist()) == prefix:
                return playback
        return _DRAWN


_DRAWN = Playback()
_FAILURES = ("oom", "crash", "hang", "corrupt")


def load_script(path: Path | None) -> Script:
    """Read a script; None is the default one. Raises ValueError that names the file and the wrong key."""
    if path is None:
        return Script()
    try:
        raw = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"script {path}: {error}") from error
    return parse_script(raw, str(path))


def parse_script(raw: Any, name: str = "script") -> Script:
    """From JSON values. Raises ValueError for unknown keys and wrong values."""
    values = _checked(Script, raw, name)
    values["playbacks"] = tuple(Playback(**_checked(Playback, item, f"{name}: playbacks")) for item in values.get("playbacks", ()))
    values["failures"] = tuple(Failure(**_checked(Failure, item, f"{name}: failures")) for item in values.get("failures", ()))
    script = Script(**values)
    for failure in script.failures:
        if failure.kind not in _FAILURES:
            raise ValueError(f"{name}: failures: unknown kind {failure.kind!r}, choose from {', '.join(_FAILURES)}")
    for playback in script.playbacks:
        _check_ids((*playback.prompt_prefix, *(playback.output or ())), script.vocab_size, f"{name}: playbacks")
    _check_ids(script.eos_token_ids, script.vocab_size, f"{name}: eos_token_ids")
    return script


def _checked(kind: type, raw: Any, name: str) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise ValueError(f"{name} must be an object")
    known = {field.name for field in fields(kind)}
    for key in raw:
        if key not in known:
            raise ValueError(f"{name}: unknown key {key!r}, known are {', '.join(sorted(known))}")
    return {key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()}


def _check_ids(ids: Sequence[Any], vocab_size: int, name: str) -> None:
    for token in ids:
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < vocab_size:
            raise ValueError(f"{name}: {token!r} is not a token id below {vocab_size}")
