"""Exit 1 if generating the stubs from the contracts would change a committed file."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


def main() -> int:
    contracts = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "protos").rglob("*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        out = [f"--{kind}_out={folder}" for kind in ("python", "pyi", "grpc_python")]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", "-I", str(ROOT), *out, *contracts], cwd=ROOT, check=True)
        fresh = {path.relative_to(folder).as_posix(): path.read_bytes() for path in Path(folder).rglob("*_pb2*.py*")}
    committed = [path for path in (ROOT / "protos").rglob("*_pb2*.py*") if path.suffix != ".pyc"]
    stored = {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in committed}
    different = sorted(name for name in fresh.keys() | stored.keys() if fresh.get(name) != stored.get(name))
    for name in different:
        print(f"{name} is not what its contract generates; run make protos", file=sys.stderr)
    print(f"{len(stored)} stubs checked, {len(different)} differ")
    return 1 if different else 0


if __name__ == "__main__":
    raise SystemExit(main())
