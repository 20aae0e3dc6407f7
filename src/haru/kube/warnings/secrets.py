"""What is told about Secrets that are accepted and cannot be used for what their type says."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator

from haru.kube.meta import Obj

_TLS = "kubernetes.io/tls"
_PARTS = (("tls.crt", b"-----BEGIN CERTIFICATE-----", "certificate"), ("tls.key", b"-----BEGIN ", "key"))


def secret_warnings(secret: Obj) -> Iterator[str]:
    """Warn of a certificate or key that is none in PEM."""
    if secret.get("type") != _TLS:
        return
    data = secret.get("data") or {}
    for name, begins, what in _PARTS:
        try:
            text = base64.b64decode(data.get(name) or "")
        except binascii.Error:
            text = b""
        if begins not in text:
            yield f"tls: failed to find any PEM data in {what} input"
            return
