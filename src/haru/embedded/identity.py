"""Who is who in a data directory: its certificate authority, server certificate, signing key and bearer tokens.

Made once and kept (mode 0600), so that kubeconfigs and tokens stay valid across restarts. Each component of `haru up`
has a token, and so a user, of its own.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ADMIN = "admin"
USERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    ADMIN: ("haru-admin", ("system:masters",)),
    "scheduler": ("system:kube-scheduler", ()),
    "controllers": ("system:kube-controller-manager", ("system:masters",)),
    "fleet": ("system:haru-fleet", ("system:masters",)),
}


@dataclass(frozen=True, slots=True)
class Identity:
    """Paths and secrets of one data directory. Tokens are by component (the keys of `USERS`)."""

    ca_pem: bytes
    server_cert: Path
    server_key: Path
    signing_key_pem: bytes
    tokens: Mapping[str, str]


def write_private(path: Path, data: bytes) -> None:
    """Replaces a file whole or not at all, readable by its owner only."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load_tokens(directory: Path) -> dict[str, str]:
    """The tokens of the directory; missing ones are made and kept."""
    path = directory / "tokens.json"
    known: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    missing = [name for name in USERS if name not in known]
    if missing:
        known |= {name: secrets.token_urlsafe(32) for name in missing}
        write_private(path, json.dumps(known, indent=1).encode())
    return known
