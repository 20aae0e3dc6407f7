"""Options of a component's HTTPS port, with the names and defaults of kube-scheduler's flags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from haru.secure_serving.authorization import ALWAYS_ALLOWED_PATHS


@dataclass(frozen=True, slots=True)
class ServingOptions:
    """Where a component serves health and metrics, and who may read them. Durations are seconds."""

    address: str = "0.0.0.0"
    port: int = 0
    """0: any that is free."""
    cert_file: Path | None = None
    key_file: Path | None = None
    cert_dir: Path | None = None
    """Without files and directory the certificate is in memory alone."""
    names: Sequence[str] = ()
    """Further host names of a certificate that is made."""
    client_ca_file: Path | None = None
    skip_lookup: bool = False
    """Do not read the authority of client certificates from kube-system/extension-apiserver-authentication."""
    tolerate_lookup_failure: bool = True
    token_seconds: float = 10.0
    allowed_seconds: float = 10.0
    denied_seconds: float = 10.0
    always_allowed: Sequence[str] = ALWAYS_ALLOWED_PATHS
    look_seconds: float = 10.0
    """Between two looks whether a certificate changed."""
