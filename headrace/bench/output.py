"""A run as one JSON line, from which every figure can be computed again."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headrace.bench.measure import Measurement


def as_json(done: Measurement, *, details: bool) -> dict[str, Any]:
    """Plain values: circumstances, summary, the server's own account, and on demand every request."""
    about = asdict(done.about)
    value: dict[str, Any] = {"started_unix": done.started_unix, **about, "summary": done.summary.as_json(), "server_info": done.server}
    if details:
        value["requests"] = [
            {
                "index": o.index,
                "sent": o.sent,
                "ended": o.ended,
                "input_len": o.prompt_tokens,
                "output_len": o.output_tokens,
                "cached_tokens": o.cached_tokens,
                "ttft": o.ttft,
                "itls": o.gaps,
                "finish": o.finish,
                "error": o.error,
                "detail": o.detail,
                "text": o.text,
            }
            for o in done.outcomes
        ]
    return value


def append(path: str, done: Measurement, *, details: bool) -> None:
    """Add the run to a file of JSON lines."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as out:
        out.write(json.dumps(as_json(done, details=details)) + "\n")
