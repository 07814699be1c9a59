"""Constraints of a folder, compiled before the worker is ready: `--warm-schemas`."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from concurrent.futures import wait
from pathlib import Path

from services.common.config import ConfigError
from services.common.errors import HeadraceError
from services.scheduler.grammar.interface import GrammarKind, GrammarSpec
from services.scheduler.grammar.store import Entry, GrammarStore

log = logging.getLogger(__name__)

KINDS = {".json": GrammarKind.JSON_SCHEMA, ".regex": GrammarKind.REGEX, ".ebnf": GrammarKind.EBNF}
"""What a file is, by the end of its name. Other files are left alone."""
_EXPIRY_CHECK_S = 0.5


def warm(store: GrammarStore, folder: Path) -> int:
    """Compile every constraint of the folder, within the limits of any other; returns how many files there were.

    These compiles count as no lookups: what the store counts is what requests meet. Raises ConfigError naming the file and
    the reason for one that cannot be read or is not a valid constraint here, and where the store cannot hold them all.
    """
    if not folder.is_dir():
        raise ConfigError(f"--warm-schemas: {folder}: no such folder")
    began = time.monotonic()
    files = sorted(path for path in folder.iterdir() if path.suffix in KINDS and path.is_file())
    entries = [(path, entry) for path in files for entry in _entries(store, path)]
    for path, entry in entries:
        while not entry.ready:
            wait([entry.future], timeout=_EXPIRY_CHECK_S)
        if entry.error is not None:
            raise _bad(path, entry.error.message)
    if lost := [path for path, entry in entries if entry.spec not in store]:
        raise _bad(lost[0], f"{len(files)} files are more than the cache of grammars holds")
    log.info("constraints compiled", extra={"folder": str(folder), "files": len(files), "seconds": round(time.monotonic() - began, 2)})
    return len(files)


def _entries(store: GrammarStore, path: Path) -> Iterator[Entry]:
    try:
        for text in _as_sent(path):
            yield store.entry(GrammarSpec(KINDS[path.suffix], text), again=True)
    except HeadraceError as error:
        raise _bad(path, error.message) from error
    except (OSError, ValueError, RecursionError) as error:
        raise _bad(path, str(error)) from error


def _as_sent(path: Path) -> set[str]:
    """The texts under which requests bring it: a schema given as an object is written anew by the gateway."""
    text = path.read_text(encoding="utf-8")
    bare = text.rstrip("\r\n")
    match KINDS[path.suffix]:
        case GrammarKind.JSON_SCHEMA:
            return {json.dumps(json.loads(text), ensure_ascii=False), bare}
        case GrammarKind.REGEX:
            return {bare}
        case _:
            return {text, bare}


def _bad(path: Path, reason: str) -> ConfigError:
    return ConfigError(f"--warm-schemas: {path}: {reason}")
