"""One line per event, as text or JSON, on standard error.

Log with `extra={"request_id": …, "key": value}`: the extras become `key=value` pairs or JSON members. Prompts and
answers are never logged.
"""

from __future__ import annotations

import json
import logging
import sys
import time

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def _extras(record: logging.LogRecord) -> dict[str, object]:
    return {k: v for k, v in vars(record).items() if k not in _STANDARD}


def _timestamp(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"


class TextFormatter(logging.Formatter):
    """`time level service message key=value …`, control characters escaped so that an event stays one line."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self.service = service

    def format(self, record: logging.LogRecord) -> str:
        pairs = "".join(f" {k}={v}" for k, v in _extras(record).items())
        line = f"{_timestamp(record)} {record.levelname.lower():7} {self.service} {record.getMessage()}{pairs}"
        if record.levelno < logging.ERROR and "report" not in vars(record):
            line = line.replace("\r", "\\r").replace("\n", "\\n")
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object per event."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self.service = service

    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, object] = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "service": self.service,
            "message": record.getMessage(),
            **_extras(record),
        }
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return json.dumps(event, default=str, ensure_ascii=False)


def setup(service: str, *, level: str = "info", style: str = "text") -> None:
    """Send all logging of this process to standard error in the given style."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(service) if style == "json" else TextFormatter(service))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def set_level(level: str) -> str:
    """Change the least severity logged; returns the previous one. Raises ValueError for an unknown level."""
    root = logging.getLogger()
    previous = logging.getLevelName(root.level).lower()
    root.setLevel(level.upper())
    return previous


def switch_level(level: str) -> None:
    """`set_level` for a signal: it says so in the log, whatever the level."""
    previous = set_level(level)
    logging.getLogger(__name__).warning("log level changed", extra={"from": previous, "to": level})
