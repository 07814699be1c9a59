"""Certificates for a test: an authority, and pairs that it signed, as a Kubernetes TLS secret holds them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.helm.tools import tool

_DAYS = "2"


def _openssl(*arguments: str) -> None:
    done = subprocess.run([tool("openssl"), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class Authority:
    """Signs certificates; its own is ca.crt of every secret."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.certificate = folder / "ca.crt"
        self._key = folder / "ca.key"
        _openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", _DAYS,
            "-subj", "/CN=a test's authority", "-keyout", str(self._key), "-out", str(self.certificate),
        )  # fmt: skip

    def secret(self, folder: Path, name: str) -> Path:
        """Write tls.crt, tls.key and ca.crt for a server or client called `name` into a folder; returns it."""
        folder.mkdir(parents=True, exist_ok=True)
        request, extension = self._folder / "request.pem", self._folder / "extension"
        extension.write_text(f"subjectAltName=DNS:{name}\nextendedKeyUsage=serverAuth,clientAuth\n")
        _openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}",
            "-keyout", str(folder / "tls.key"), "-out", str(request),
        )  # fmt: skip
        _openssl(
            "x509", "-req", "-in", str(request), "-CA", str(self.certificate), "-CAkey", str(self._key), "-CAcreateserial",
            "-days", _DAYS, "-extfile", str(extension), "-out", str(folder / "tls.crt"),
        )  # fmt: skip
        (folder / "ca.crt").write_bytes(self.certificate.read_bytes())
        return folder
