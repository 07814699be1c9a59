"""Messages between the gateway and its checkers: a length (4 bytes, little-endian) and JSON."""

from __future__ import annotations

import json
import struct
from typing import Any

LENGTH = struct.Struct("<I")


def message_bytes(value: Any) -> bytes:
    """A message as it is sent."""
    data = json.dumps(value).encode()
    return LENGTH.pack(len(data)) + data
