"""`headrace model fetch|list|path|gguf|check`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from headrace.models.catalog import CATALOG, DEFAULT_MODEL, find
from headrace.models.errors import ModelError
from headrace.models.resolve import resolve
from headrace.models.store import ModelStore
from services.common.config import cache_dir

_USAGE = f"""usage: headrace model fetch [NAME]   download and convert (default {DEFAULT_MODEL})
       headrace model list           what can be fetched, and what is here
       headrace model path [NAME]    folder of a model, fetched if need be
       headrace model gguf [NAME]    GGUF file a fetched model was converted from
       headrace model check [NAME]   measure what int8 costs the model; a pass lets --quantization auto use it"""


def main(argv: Sequence[str]) -> int:
    """Returns 0, 1 for a model that cannot be had, 2 for an unusable command line."""
    if not argv or argv[0] in ("-h", "--help"):
        print(_USAGE)
        return 0 if argv else 2
    action, names = argv[0], argv[1:]
    if action not in ("fetch", "list", "path", "gguf", "check") or len(names) > (0 if action == "list" else 1):
        print(_USAGE, file=sys.stderr)
        return 2
    store = ModelStore(cache_dir())
    if action == "list":
        print(listing(store))
        return 0
    name = names[0] if names else DEFAULT_MODEL
    try:
        return act(action, name, store)
    except ModelError as error:
        print(f"headrace model: {error}", file=sys.stderr)
        return 1


def act(action: str, name: str, store: ModelStore) -> int:
    """One of fetch, path, gguf and check. Raises ModelError."""
    known = find(name)
    if action == "gguf" or (action == "fetch" and known is not None and known.cannot_serve):
        if known is None:
            raise ModelError(f"{name} is not a model that is fetched as a GGUF file")
        print(store.download(known, _say))
        if known.cannot_serve:
            _say(f"{known.name} cannot be served: {known.cannot_serve}")
        return 0
    folder = resolve(name, store, _say).folder
    if action == "check":
        return check(folder)
    print(folder)
    return 0


def check(folder: Path) -> int:
    """Run the quality check of the CPU's int8 kernels; 0 for a pass, 1 for a fail or where it cannot run."""
    quality = importlib.import_module("services.scheduler.engine.quality")  # brings torch
    try:
        figures = quality.check_quality(folder, cache_dir(), len(os.sched_getaffinity(0)), _say)
    except (ValueError, RuntimeError) as error:
        raise ModelError(f"the check cannot run: {error}") from error
    passed, why = figures.verdict
    print(f"{'passed' if passed else 'failed'}: {why}")
    return 0 if passed else 1


def listing(store: ModelStore) -> str:
    """A table: known models first, then what else the store holds."""
    here = {stored.name: stored for stored in store.stored()}
    lines = [f"{'name':24} {'state':34} what"]
    for model in CATALOG:
        if model.name in here:
            state = f"ready, {here[model.name].megabytes:.0f} MB"
        elif store.gguf(model).exists():
            state = "fetched, not converted"
        else:
            state = f"to fetch, {model.megabytes} MB"
        lines.append(f"{model.name:24} {state:34} {model.title} ({model.license})")
        if model.cannot_serve:
            lines.append(f"{'':24} {'':34} cannot be served: {model.cannot_serve}")
    known = {model.name for model in CATALOG}
    lines += [f"{s.name:24} {f'ready, {s.megabytes:.0f} MB':34} {s.folder}" for s in here.values() if s.name not in known]
    return "\n".join(lines)


def _say(line: str) -> None:
    print(f"[headrace] {line}", file=sys.stderr, flush=True)
