"""The program that compiles grammars for xgrammar: `python -m services.scheduler.grammar.xgrammar_process`.

A compile cannot be interrupted, and a hostile grammar may take hours and all memory. In a process of its own it can be
killed, and the kernel limits what it takes. Messages are a length (4 bytes, little-endian) and JSON, on standard
input and output; a vocabulary first, then constraints, one answer each.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import struct
import sys
import types
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from services.scheduler.grammar.probe import too_costly

_MEMORY_LIMIT = 4 << 30
_LENGTH = struct.Struct("<I")
_LOOSE_CLASS = r"[^\"\\\r\n]"
_ESCAPE = re.compile(r"\\\\|\\x([0-9A-Fa-f]{2})")
_PLACE_IN_SOURCE = re.compile(r"^(\[[\d:]+\] )?(\S+\.cc:\d+: )?")
_STRICT_CLASS = r"[^\0-\x1f\"\\]"


def read_message(stream: BinaryIO) -> Any:
    """The next message, None at the end."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    return json.loads(stream.read(_LENGTH.unpack(head)[0]))


def message_bytes(value: Any) -> bytes:
    """A message as it is sent."""
    data = json.dumps(value, ensure_ascii=False).encode()
    return _LENGTH.pack(len(data)) + data


class _Unneeded:
    """Whatever a module that is not needed here would have offered."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass


class _UnneededModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Unneeded


def _load_library() -> Any:
    """xgrammar without torch and transformers, which it imports for masks on devices and for tokenizer objects only."""
    sys.modules["torch"] = None  # type: ignore[assignment]
    import tvm_ffi  # noqa: F401

    for name in ("torch", "transformers"):
        sys.modules[name] = _UnneededModule(name)
    import xgrammar

    return xgrammar


class _Walker:
    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher

    def accept(self, token_id: int) -> bool:
        return bool(self._matcher.accept_token(token_id))

    def fill_mask(self, words: npt.NDArray[np.int32]) -> None:
        words.fill(-1)
        self._matcher.fill_next_token_bitmask(words.reshape(1, -1))

    @property
    def finished(self) -> bool:
        return bool(self._matcher.is_terminated())


class _Compiler:
    def __init__(self, library: Any, vocabulary: dict[str, Any]) -> None:
        self._library = library
        self._whitespace = vocabulary["whitespace"]
        info = library.TokenizerInfo(
            [piece.encode("latin-1") for piece in vocabulary["pieces"]],
            library.VocabType.RAW,
            vocab_size=len(vocabulary["pieces"]),
            stop_token_ids=vocabulary["end_ids"],
        )
        self._words = -(-len(vocabulary["pieces"]) // 32)
        self._compiler = library.GrammarCompiler(info, max_threads=1, cache_enabled=False)

    def compile(self, kind: str, text: str) -> dict[str, str]:
        compiled = self._compiler.compile_grammar(self._grammar(kind, text))
        if too_costly(lambda: _Walker(self._library.GrammarMatcher(compiled)), self._words):
            return {"costly": "following it costs too much time per token"}
        return {"grammar": str(compiled.serialize_json())}

    def _grammar(self, kind: str, text: str) -> Any:
        grammars = self._library.Grammar
        match kind:
            case "regex":
                return grammars.from_regex(text)
            case "ebnf":
                return grammars.from_ebnf(text)
            case "json_schema":
                loose = grammars.from_json_schema(text, **self._whitespace)
            case _:
                loose = grammars.from_structural_tag(text)
        printed = str(loose)
        return grammars.from_ebnf(_without_control_characters(printed)) if _LOOSE_CLASS in printed else loose


def _without_control_characters(printed: str) -> str:
    """A printed grammar whose strings of a given length admit no control characters, as JSON does not.

    `\\xf6` is printed, but read back with as many hexadecimal digits as follow; `\\u00f6` is not.
    """
    strict = printed.replace(_LOOSE_CLASS, _STRICT_CLASS)
    return _ESCAPE.sub(lambda found: f"\\u00{found[1]}" if found[1] else found[0], strict)


def main() -> None:
    """Serve until standard input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_LIMIT, _MEMORY_LIMIT))
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the library prints must not get between the messages
    vocabulary = read_message(source)
    if vocabulary is None:
        return
    compiler = _Compiler(_load_library(), vocabulary)
    os.nice(19)  # from here on; somebody waits for the start
    while (order := read_message(source)) is not None:
        signal.setitimer(signal.ITIMER_PROF, order["limit_s"])  # processor time; its signal ends the process
        try:
            answer = compiler.compile(order["kind"], order["text"])
        except Exception as error:  # the library raises its own types and RuntimeError
            lines = str(error).strip().splitlines() or [type(error).__name__]
            answer = {"error": _PLACE_IN_SOURCE.sub("", lines[-1])}
        signal.setitimer(signal.ITIMER_PROF, 0)
        sink.write(message_bytes(answer))
        sink.flush()


if __name__ == "__main__":
    main()
