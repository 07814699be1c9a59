"""The endpoints in a set of Kubernetes EndpointSlices, from listings and from events in whatever order they come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gateway.workers.address import normalise
from gateway.workers.membership import Endpoint
from services.common.errors import InvalidRequest

Slice = Mapping[str, Any]


class EndpointSlices:
    """Slices by name. An event older than what is known of its slice is ignored, deletions included."""

    def __init__(self, *, port_name: str, port: int | None = None) -> None:
        self._port_name = port_name
        self._port = port
        self._slices: dict[str, Slice] = {}
        self._versions: dict[str, int] = {}

    def listed(self, items: Iterable[Slice]) -> None:
        """A complete listing replaces everything."""
        self._slices = {_name(item): item for item in items}
        self._versions = {name: _version(item) for name, item in self._slices.items()}

    def changed(self, kind: str, item: Slice) -> None:
        """One watch event: ADDED, MODIFIED or DELETED."""
        name, version = _name(item), _version(item)
        if version and version < self._versions.get(name, 0):
            return
        self._versions[name] = version
        if kind == "DELETED":
            self._slices.pop(name, None)
        elif kind in ("ADDED", "MODIFIED"):
            self._slices[name] = item

    def endpoints(self) -> dict[str, Endpoint]:
        """Normalised address → endpoint. Not listed: addresses that have not begun to serve."""
        found: dict[str, Endpoint] = {}
        for item in self._slices.values():
            going = bool((item.get("metadata") or {}).get("deletionTimestamp"))
            port = self._port or self._named_port(item)
            for entry in item.get("endpoints") or ():
                conditions = entry.get("conditions") or {}
                leaving = going or bool(conditions.get("terminating"))
                if not leaving and conditions.get("ready") is False:
                    continue
                for address in entry.get("addresses") or ():
                    self._note(found, address, port, leaving)
        return found

    def _note(self, found: dict[str, Endpoint], address: str, port: int | None, leaving: bool) -> None:
        try:
            key = normalise(f"[{address}]:{port}" if ":" in address else f"{address}:{port}")
        except InvalidRequest:
            return
        other = found.get(key)
        found[key] = Endpoint(leaving=leaving and (other is None or other.leaving))

    def _named_port(self, item: Slice) -> int | None:
        ports = item.get("ports") or ()
        named = [entry for entry in ports if entry.get("name") == self._port_name]
        chosen = named or ports
        return chosen[0].get("port") if chosen else None


def _name(item: Slice) -> str:
    return str(item["metadata"]["name"])


def _version(item: Slice) -> int:
    text = str(item["metadata"].get("resourceVersion", ""))
    return int(text) if text.isdigit() else 0
