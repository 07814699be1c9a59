"""One version for the whole suite; a gateway and its workers must agree on PROTOCOL."""

from __future__ import annotations

VERSION = "0.1.0"
PROTOCOL = 1
