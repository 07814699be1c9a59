"""The rules of docs/architecture.md that a reader of the code relies on, checked on the syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parent.parent
PRODUCT = ("services", "gateway", "headrace", "protos")
OURS = (*PRODUCT, "benchmarks", "tests")

SERVICES = ("tokenizer", "scheduler", "detokenizer")
PURE = ("services/scheduler/core/", "services/scheduler/cache/", "gateway/routing/", "gateway/prefix/")
TENSORS = (
    *(f"services/scheduler/{part}/" for part in ("engine", "attention", "kernels", "layers", "models", "weights", "distributed")),
    "services/scheduler/cache/kv_pool.py",
    "services/scheduler/cache/sizing.py",
    "headrace/models/convert.py",
)
STUB_USERS = ("servicer", "convert", "grpc_front")
STUB_FOLDERS = ("protos/", "services/common/", "gateway/clients/", "headrace/client/")
ENVIRONMENT = ("os.environ", "os.environb", "os.getenv", "os.putenv")
ACCELERATOR = ("triton", "flashinfer")

LONGEST_FILE, LONG_FILE, SHORT_FILE = 500, 300, 150
LONGEST_FUNCTION = 80


@dataclass(frozen=True)
class Source:
    """One file of the product: its path relative to the repository, its lines and its tree."""

    path: str
    lines: int
    tree: ast.Module

    @property
    def package(self) -> str:
        """Dotted name of the folder the file lies in, for relative imports."""
        return ".".join(PurePosixPath(self.path).parent.parts)

    def imports(self) -> Iterator[tuple[str, int, bool]]:
        """(dotted name, line, at module level) of everything imported, wherever the statement stands."""
        top = set(ast.iter_child_nodes(self.tree))
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield alias.name, node.lineno, node in top
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    kept = self.package.split(".")[: len(self.package.split(".")) - node.level + 1]
                    base = ".".join([*kept, base] if base else kept)
                for alias in node.names:
                    yield f"{base}.{alias.name}", node.lineno, node in top

    def is_generated(self) -> bool:
        return self.path.endswith(("_pb2.py", "_pb2_grpc.py"))


@cache
def sources() -> tuple[Source, ...]:
    found = []
    for name in PRODUCT:
        for file in sorted((ROOT / name).rglob("*.py")):
            text = file.read_text()
            found.append(Source(file.relative_to(ROOT).as_posix(), text.count("\n"), ast.parse(text)))
    return tuple(found)


def within(name: str, *modules: str) -> bool:
    """Is the dotted `name` one of the modules, or inside one?"""
    return any(name == module or name.startswith(module + ".") for module in modules)


def offending(rule: str, found: list[str]) -> None:
    assert not found, f"{rule}:\n  " + "\n  ".join(found)


def test_the_tree_is_read() -> None:
    assert {source.path.split("/")[0] for source in sources()} == set(PRODUCT)


def test_services_know_only_themselves_and_what_is_common() -> None:
    found = []
    for source in sources():
        own = next((s for s in SERVICES if source.path.startswith(f"services/{s}/")), None)
        allowed: tuple[str, ...]
        if source.path.startswith("services/common/"):
            allowed = ("protos", "services.common")
        elif own is not None:
            allowed = ("protos", "services.common", f"services.{own}")
        elif source.path.startswith("gateway/"):
            allowed = ("protos", "services.common", "gateway")
        elif source.path.startswith("protos/"):
            allowed = ("protos",)
        else:
            continue
        for name, line, _ in source.imports():
            if within(name, *OURS) and not within(name, *allowed):
                found.append(f"{source.path}:{line} imports {name}")
    offending("a service imports another, or the gateway imports a service", found)


def test_the_product_does_not_import_its_tests_or_benchmarks() -> None:
    found = [f"{s.path}:{line} {name}" for s in sources() for name, line, _ in s.imports() if within(name, "tests", "benchmarks")]
    offending("product code imports tests or benchmarks", found)


def test_stubs_stay_at_the_edges() -> None:
    found = []
    for source in sources():
        parts = PurePosixPath(source.path).with_suffix("").parts
        if source.path.startswith(STUB_FOLDERS) or any(part in STUB_USERS for part in parts):
            continue
        found += [f"{source.path}:{line} {name}" for name, line, _ in source.imports() if "_pb2" in name]
    offending("generated stubs are used outside servicer, convert and the clients", found)


def test_tensors_stay_below_the_engine_line() -> None:
    found = [
        f"{source.path}:{line} {name}"
        for source in sources()
        if not source.path.startswith(TENSORS)
        for name, line, _ in source.imports()
        if within(name, "torch", "safetensors.torch")
    ]
    offending("torch above the engine line", found)


def test_thinking_code_is_plain() -> None:
    found = [
        f"{source.path}:{line} {name}"
        for source in sources()
        if source.path.startswith(PURE)
        for name, line, _ in source.imports()
        if within(name, "asyncio", "grpc", "threading", "aiohttp", "starlette")
    ]
    offending("asyncio, threads or grpc in pure code", found)


def test_the_environment_is_read_in_one_place() -> None:
    found = []
    for source in sources():
        if source.path == "services/common/config.py":
            continue
        attributes = (node for node in ast.walk(source.tree) if isinstance(node, ast.Attribute))
        found += [f"{source.path}:{node.lineno} {ast.unparse(node)}" for node in attributes if ast.unparse(node) in ENVIRONMENT]
        found += [f"{source.path}:{line} {name}" for name, line, _ in source.imports() if name in ENVIRONMENT]
    offending("the environment is read outside services/common/config.py", found)


def test_accelerator_libraries_load_on_first_use() -> None:
    found = []
    for source in sources():
        own = any(library in source.path for library in ACCELERATOR)
        for name, line, at_top in source.imports():
            if own:
                continue
            if within(name, *ACCELERATOR):
                found.append(f"{source.path}:{line} imports {name}")
            elif at_top and within(name, "services") and any(library in name for library in ACCELERATOR):
                found.append(f"{source.path}:{line} imports {name} when it is itself imported")
    offending("triton or flashinfer outside their own files", found)


def test_nothing_is_pickled() -> None:
    found = [f"{s.path}:{line} {n}" for s in sources() for n, line, _ in s.imports() if within(n, "pickle", "dill", "cloudpickle")]
    offending("pickle in product code", found)


def _does_something(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Constant)
    if isinstance(node, ast.If):
        test = ast.unparse(node.test)
        if "__name__" in test or "TYPE_CHECKING" in test:
            return False
        return any(_does_something(inner) for inner in (*node.body, *node.orelse))
    if isinstance(node, ast.Try):
        inner = [*node.body, *node.orelse, *node.finalbody, *(s for h in node.handlers for s in h.body)]
        return any(_does_something(statement) for statement in inner)
    return isinstance(node, ast.For | ast.While | ast.With | ast.Delete | ast.Raise)


def test_importing_a_module_does_nothing() -> None:
    found = [
        f"{source.path}:{node.lineno} {ast.unparse(node)[:60]}"
        for source in sources()
        if not source.is_generated()
        for node in source.tree.body
        if _does_something(node)
    ]
    offending("a statement with an effect at module level", found)


@pytest.mark.parametrize("package", PRODUCT)
def test_files_stay_readable(package: str) -> None:
    own = [s for s in sources() if s.path.startswith(package + "/") and not s.is_generated()]
    offending(f"files over {LONGEST_FILE} lines", [f"{s.path} {s.lines}" for s in own if s.lines > LONGEST_FILE])
    long = [f"{s.path} {s.lines}" for s in own if s.lines > LONG_FILE]
    if len(long) > max(2, len(own) // 10):
        offending(f"more than a tenth of the files are over {LONG_FILE} lines", long)
    short = [s for s in own if s.lines <= SHORT_FILE]
    assert len(short) * 2 > len(own), f"most files should have at most {SHORT_FILE} lines"


def test_functions_fit_a_screen() -> None:
    found = []
    for source in sources():
        for node in ast.walk(source.tree):
            if not source.is_generated() and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > LONGEST_FUNCTION:
                    found.append(f"{source.path}:{node.lineno} {node.name} {length}")
    offending(f"functions over {LONGEST_FUNCTION} lines", found)
