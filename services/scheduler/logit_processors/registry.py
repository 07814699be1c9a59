"""Which processors a worker has. Requests name them; no code ever comes with a request."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from services.common.config import ConfigError
from services.common.errors import InvalidRequest
from services.scheduler.core.plan import RowStart
from services.scheduler.logit_processors.builtin import BUILTIN
from services.scheduler.logit_processors.interface import Factory
from services.scheduler.logit_processors.row import RowProcessor

MAX_PARAMS_BYTES = 16_384
_ENTRY = re.compile(r"([A-Za-z0-9_.-]{1,64})=([A-Za-z_][\w.]*):([A-Za-z_]\w*)")
_NAME, _PARAMS = "sampling.custom_logit_processor", "sampling.custom_params"


class LogitProcessors:
    """Factories by name; None where custom processors are off."""

    def __init__(self, factories: Mapping[str, Factory] | None = None) -> None:
        self._factories = factories

    def check(self, name: str, params: str, vocab_size: int) -> tuple[str, str] | None:
        """Name and parameters (JSON text of an object) as a sampling spec has them, None for neither. Raises InvalidRequest."""
        if not name:
            if params:
                raise InvalidRequest(f"{_PARAMS} are for a processor: give {_NAME}", field=_PARAMS)
            return None
        if self._factories is None:
            raise InvalidRequest(f"{_NAME}: custom processors are off (--enable-custom-logit-processor)", field=_NAME)
        if name not in self._factories:
            known = ", ".join(sorted(self._factories))
            raise InvalidRequest(f"{_NAME}: {name[:64]!r} is not registered with this worker; {known} are", field=_NAME)
        try:
            self._factories[name](_object(params), vocab_size)
        except Exception as error:  # a missing key may be any of them, and none may harm the Session
            why = error if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            raise InvalidRequest(f"{_PARAMS}: {why}", field=_PARAMS) from error
        return name, params

    def of_row(self, start: RowStart, vocab_size: int) -> RowProcessor | None:
        """The processor of a row that begins, if it has one; its name was checked."""
        if start.sampling.processor is None:
            return None
        name, params = start.sampling.processor
        factory = (self._factories or {})[name]
        return RowProcessor(name, partial(_make, factory, params, vocab_size), start.prompt_ids, start.output_ids)


NO_PROCESSORS = LogitProcessors()


def load_processors(enabled: bool, entries: Iterable[str]) -> LogitProcessors:
    """The built-in ones and `name=package.module:factory` entries, imported now. Raises ConfigError."""
    found = dict(BUILTIN)
    for entry in entries:
        if not enabled:
            raise ConfigError("--logit-processors: --enable-custom-logit-processor is off")
        matched = _ENTRY.fullmatch(entry)
        if matched is None:
            raise ConfigError(f"--logit-processors: {entry!r} is not of the form name=package.module:factory")
        name, module, attribute = matched.groups()
        try:
            factory = getattr(importlib.import_module(module), attribute)
        except Exception as error:  # whatever importing somebody's module may raise
            raise ConfigError(f"--logit-processors: {entry}: {type(error).__name__}: {error}") from error
        if not callable(factory):
            raise ConfigError(f"--logit-processors: {entry}: {attribute} cannot be called")
        if name in found:
            raise ConfigError(f"--logit-processors: {name!r} is there already")
        found[name] = factory
    return LogitProcessors(found if enabled else None)


def _make(factory: Factory, params: str, vocab_size: int) -> Any:
    return factory(_object(params), vocab_size)


def _object(text: str) -> Mapping[str, Any]:
    if not text:
        return {}
    if len(text.encode()) > MAX_PARAMS_BYTES:
        raise ValueError(f"at most {MAX_PARAMS_BYTES} bytes of JSON are possible")
    try:
        found = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("must be a JSON object")
    return found
