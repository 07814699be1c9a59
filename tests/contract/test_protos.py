"""The contracts keep the compatibility rules of protos/README.md."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from google.protobuf.descriptor import FileDescriptor

ROOT = Path(__file__).parents[2]
MODULES = sorted(str(p.relative_to(ROOT)).removesuffix(".proto").replace("/", ".") + "_pb2" for p in (ROOT / "protos").rglob("*.proto"))


def _descriptor(module: str) -> FileDescriptor:
    found: FileDescriptor = importlib.import_module(module).DESCRIPTOR
    return found


@pytest.mark.parametrize("module", MODULES)
def test_package_is_the_path(module: str) -> None:
    _, area, version, _ = module.split(".")
    assert _descriptor(module).package == f"headrace.{area}.{version}"


@pytest.mark.parametrize("module", MODULES)
def test_enum_zero_is_unspecified(module: str) -> None:
    file = _descriptor(module)
    enums = list(file.enum_types_by_name.values())
    for message in file.message_types_by_name.values():
        enums.extend(message.enum_types)
    for enum in enums:
        assert enum.values_by_number[0].name.endswith("_UNSPECIFIED"), enum.full_name


def test_all_contracts_are_covered() -> None:
    assert len(MODULES) == 6
