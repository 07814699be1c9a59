"""The gateway's effective settings, for `/server_info`."""

from __future__ import annotations

import os
from typing import Any

from gateway.config import GatewayConfig
from services.common.config import Sources, options_of, show


def settings_report(config: GatewayConfig, sources: Sources) -> dict[str, Any]:
    """Each setting with its value and where it came from; secrets are named, not shown."""
    rows = []
    for name, (info, _, _) in options_of(GatewayConfig).items():
        value = getattr(config, name)
        shown = ("set" if value else "none") if info.secret else show(value)
        rows.append({"name": name, "value": shown, "source": sources.of.get(name, "default"), "unit": info.unit})
    return {"process_id": os.getpid(), "settings": rows}
