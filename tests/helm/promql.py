"""Just enough PromQL reading to hold queries against the families we declare."""

from __future__ import annotations

import re
from collections.abc import Collection

from services.common.metric_families import FAMILIES, Family, Kind

_NAME = re.compile(r"(?<![\w:$])(headrace[\w:]+)(\{[^}]*\})?")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_SUFFIXES = ("_bucket", "_sum", "_count")
_SCRAPE_LABELS = {"namespace", "pod", "instance", "job", "le", "model_name"}


def exported() -> dict[str, Family]:
    """Every sample name that a scrape can show, with its family."""
    names: dict[str, Family] = {}
    for families in FAMILIES.values():
        for family in families:
            for suffix in _SUFFIXES if family.kind is Kind.HISTOGRAM else ("",):
                names[family.name + suffix] = family
    return names


def unknown_names(expression: str, recorded: Collection[str] = ()) -> list[str]:
    """Series and labels of a query that nobody exports or records."""
    names, wrong = exported(), []
    for name, matchers in _NAME.findall(expression):
        if name in recorded:
            continue
        if name not in names:
            wrong.append(name)
            continue
        labels = {label.name for label in names[name].labels} | _SCRAPE_LABELS
        wrong += [f"{name}{{{label}}}" for label in _MATCHER.findall(matchers) if label not in labels]
    return wrong
