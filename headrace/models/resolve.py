"""From what a person passes as --model to a folder on disk."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from headrace.models.catalog import CATALOG, find, nearest
from headrace.models.errors import ModelError
from headrace.models.progress import Say
from headrace.models.store import ModelStore

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_HUB_FILES = ("*.json", "*.safetensors", "*.jinja", "*.model", "*.txt")


@dataclass(frozen=True, slots=True)
class Resolved:
    """A folder that all services can load, and the name the model is served under."""

    folder: Path
    name: str


def resolve(model: str, store: ModelStore, say: Say) -> Resolved:
    """A catalog name, a local folder, a GGUF file or a hub id, in this order. Raises ModelError."""
    known = find(model)
    if known is not None and not Path(model).exists():
        return Resolved(store.ensure(known, say), known.name)
    path = Path(model).expanduser()
    if path.exists():
        return _local(path, store, say)
    if _HUB_ID.fullmatch(model) and not model.endswith(".gguf"):
        return Resolved(_from_hub(model, say), model)
    near = nearest(model)
    raise ModelError(
        f"--model {model!r}: no such file or folder, and no model of that name"
        + (f"; did you mean {near}?" if near else "")
        + f" (known: {', '.join(m.name for m in CATALOG)}; also a Hugging Face folder, a .gguf file, or a hub id owner/name)"
    )


def _local(path: Path, store: ModelStore, say: Say) -> Resolved:
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise ModelError(f"--model {path}: a file must be a .gguf; for safetensors pass the folder with config.json")
        return Resolved(store.ensure_gguf(path, say), path.stem)
    if (path / "config.json").exists():
        return Resolved(path.resolve(), path.resolve().name)
    ggufs = sorted(path.glob("*.gguf"))
    if len(ggufs) == 1:
        return Resolved(store.ensure_gguf(ggufs[0], say), ggufs[0].stem)
    found = f"{len(ggufs)} .gguf files; name the one to serve" if ggufs else "neither config.json nor a .gguf file in it"
    raise ModelError(f"--model {path}: {found}")


def _from_hub(model: str, say: Say) -> Path:
    """The hub's snapshot in its own cache; the library decides whether a download is needed."""
    say(f"{model}: looking it up on the hub")
    code = "import sys; from huggingface_hub import snapshot_download as get; print(get(sys.argv[1], allow_patterns=sys.argv[2:]))"
    done = subprocess.run([sys.executable, "-c", code, model, *_HUB_FILES], capture_output=True, text=True, check=False)
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no reason given"
        raise ModelError(
            f"--model {model}: not in the local hub cache and not reachable on the hub ({reason}). "
            "Offline, pass a local folder or GGUF file, or one of: " + ", ".join(m.name for m in CATALOG)
        )
    return Path(done.stdout.strip().splitlines()[-1])
