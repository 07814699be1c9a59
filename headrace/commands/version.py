"""`headrace version`."""

from __future__ import annotations

import platform
from collections.abc import Sequence

from services.common.version import PROTOCOL, VERSION


def main(argv: Sequence[str]) -> int:
    """Print the version, the protocol between our services, and the interpreter."""
    if argv:
        print("usage: headrace version")
        return 0 if argv[0] in ("-h", "--help") else 2
    print(f"headrace {VERSION} (protocol {PROTOCOL}, Python {platform.python_version()})")
    return 0
