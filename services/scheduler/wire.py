"""Messages between this worker's processes as bytes: plain values by `marshal`, dataclasses and arrays as tagged tuples.

Both ends run the same program, so nothing here is a contract; unlike a pickle, decoding can make nothing but the classes
listed here.
"""

from __future__ import annotations

import marshal
from dataclasses import fields
from enum import Enum
from typing import Any

import numpy as np

from services.scheduler.cache import events
from services.scheduler.core import messages, plan
from services.scheduler.core.counters import Counters
from services.scheduler.core.decisions import Decision
from services.scheduler.delivery import Cancel, Delivery, EngineState, Facts, Submit, Update
from services.scheduler.engine.interface import EngineInfo
from services.scheduler.report import ReportedSetting, StartupReport

_CLASSES: tuple[type[Any], ...] = (
    *(Submit, Cancel, Update, Delivery, EngineState, Facts, EngineInfo, StartupReport, ReportedSetting, Counters, Decision),
    *(messages.SubmitRequest, messages.ChoiceSpec, messages.StopSpec, messages.Namespace, messages.TextRules),
    *(messages.TurnOutput, messages.TokenColumns, messages.Accepted, messages.Started, messages.PromptLogprobs),
    *(messages.Final, messages.Matched, messages.Usage, messages.Timings, messages.ErrorInfo, messages.LoadSnapshot, messages.Limits),
    *(plan.SamplingSpec, plan.RowLogprobs),
    *(events.CacheEvents, events.CacheSnapshot, events.Stored, events.Removed, events.Cleared),
)
_ENUMS: tuple[type[Enum], ...] = (messages.FinishReason, messages.ErrorCode, messages.CacheLimit)
_INDEX = {cls: index for index, cls in enumerate((*_CLASSES, *_ENUMS))}
_FIELDS = {cls: tuple(field.name for field in fields(cls)) for cls in _CLASSES}
_ATOMS = frozenset({int, float, str, bytes, bool, type(None)})
_ARRAY = -1
_LOCAL = frozenset({"stop_matcher", "grammar"})  # made anew on the other side, from `texts`


def encode(value: Any) -> bytes:
    """One message. Raises TypeError for a class that is not listed."""
    return marshal.dumps(_plain(value))


def decode(data: bytes) -> Any:
    """The value of `encode`. Arrays are read-only views of `data`'s copy."""
    return _made(marshal.loads(data))


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is list:
        return value if value and type(value[0]) is int else [_plain(item) for item in value]
    if kind is tuple:
        return tuple([_plain(item) for item in value])
    if kind is dict:
        return {_plain(key): _plain(item) for key, item in value.items()}
    if kind is np.ndarray:
        return (..., _ARRAY, value.dtype.str, value.tobytes())
    names = _FIELDS.get(kind)
    if names is not None:
        return (..., _INDEX[kind], *(None if name in _LOCAL else _plain(getattr(value, name)) for name in names))
    if kind in _INDEX:
        return (..., _INDEX[kind], value.value)
    raise TypeError(f"{kind.__name__} does not travel between processes")


def _made(value: Any) -> Any:
    kind = type(value)
    if kind is list:
        return value if value and type(value[0]) is int else [_made(item) for item in value]
    if kind is dict:
        return {_made(key): _made(item) for key, item in value.items()}
    if kind is not tuple:
        return value
    if not value or value[0] is not ...:
        return tuple([_made(item) for item in value])
    tag = value[1]
    if tag == _ARRAY:
        return np.frombuffer(value[3], value[2])
    if tag < len(_CLASSES):
        return _CLASSES[tag](*map(_made, value[2:]))
    return _ENUMS[tag - len(_CLASSES)](value[2])
