"""One spelling for each worker address, so that what was added can be removed however it is written."""

from __future__ import annotations

from urllib.parse import urlsplit

from services.common.errors import InvalidRequest

_SCHEMES = ("grpc", "grpcs", "http", "https", "dns")


def normalise(address: str, *, field: str = "url") -> str:
    """`host:port` in lower case, IPv6 hosts in brackets, from any spelling with or without scheme and trailing slash.

    Raises InvalidRequest naming `field` where there is no host, no port, or more than that.
    """
    text = address.strip()
    if "://" not in text:
        text = "grpc://" + text
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidRequest(f"{address!r} is not an address: {error}", field=field) from error
    if parts.scheme.lower() not in _SCHEMES:
        raise InvalidRequest(f"{address!r}: scheme {parts.scheme!r} is not one of {', '.join(_SCHEMES)}", field=field)
    if parts.scheme.lower() == "dns" and not host:
        return normalise(parts.path.lstrip("/"), field=field)
    if not host or port is None:
        raise InvalidRequest(f"{address!r} must be host:port", field=field)
    if parts.path.strip("/") or parts.query or parts.fragment or parts.username:
        raise InvalidRequest(f"{address!r} must be host:port and nothing more", field=field)
    if not host.isprintable() or len(host.split()) != 1:
        raise InvalidRequest(f"{address!r}: a host has no spaces", field=field)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
