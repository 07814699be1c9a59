"""Every metric family of the suite, by process: the contract with dashboards, alerts and docs/metrics.md."""

from __future__ import annotations

from services.common.metric_families.family import OTHER, Family, Kind, Label
from services.common.metric_families.gateway import GATEWAY
from services.common.metric_families.shared import GRPC, SHARED
from services.common.metric_families.text import DETOKENIZER, TOKENIZER
from services.common.metric_families.worker import WORKER

FAMILIES: dict[str, tuple[Family, ...]] = {
    "gateway": (*SHARED, *GRPC, *GATEWAY),
    "scheduler": (*SHARED, *GRPC, *WORKER),
    "tokenizer": (*SHARED, *GRPC, *TOKENIZER),
    "detokenizer": (*SHARED, *GRPC, *DETOKENIZER),
}

__all__ = ["FAMILIES", "OTHER", "Family", "Kind", "Label"]
