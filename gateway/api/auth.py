"""API keys and admin keys, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from services.common.config import ConfigError
from services.common.errors import PermissionDenied, Unauthenticated


class Access(StrEnum):
    """What a route asks for."""

    OPEN = "open"
    USER = "user"
    ADMIN = "admin"


class KeyRing:
    """All valid keys as digests, so that a comparison takes the same time whatever was sent.

    With no user key, user routes are open. With no admin key, admin routes take user keys; with one, only that.
    """

    def __init__(self, user: Sequence[str], admin: Sequence[str]) -> None:
        self._user = [_digest(key) for key in user]
        self._admin = [_digest(key) for key in admin]

    @property
    def closed(self) -> bool:
        """Is there any key?"""
        return bool(self._user or self._admin)

    def check(self, access: Access, authorization: str | None, api_key: str | None = None) -> str:
        """The tenant name of a caller that may pass: a prefix of the key's digest. Raises Unauthenticated, PermissionDenied."""
        if access is Access.OPEN:
            return ""
        given = _digest(_bearer(authorization) or api_key or "")
        is_user, is_admin = _among(given, self._user), _among(given, self._admin)
        if access is Access.ADMIN and self._admin:
            if is_admin:
                return given.hex()[:16]
            if is_user:
                raise PermissionDenied("this route needs the admin key", code="admin_key_required")
            raise _refused()
        if not self._user or is_user or is_admin:
            return given.hex()[:16] if is_user or is_admin else ""
        raise _refused()


def _refused() -> Unauthenticated:
    return Unauthenticated("the API key is missing or wrong", code="invalid_api_key")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _among(given: bytes, known: Sequence[bytes]) -> bool:
    """Compares with every key, so that the time does not tell which one matched."""
    found = False
    for key in known:
        found |= hmac.compare_digest(given, key)
    return found


def _bearer(header: str | None) -> str:
    if header is None:
        return ""
    scheme, _, rest = header.partition(" ")
    return rest.strip() if scheme.lower() == "bearer" else ""


def read_keys(keys: Sequence[str], file: str | None, flag: str) -> list[str]:
    """Keys from flags and from a file with one per line. Raises ConfigError."""
    found = list(keys)
    if file is not None:
        try:
            lines = Path(file).read_text().splitlines()
        except OSError as error:
            raise ConfigError(f"--{flag}: {error}") from error
        found += [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        if not found:
            raise ConfigError(f"--{flag}: {file} has no key")
    if any(not key for key in found):
        raise ConfigError(f"--{flag.removesuffix('-file')}: an empty key")
    return found
