"""Who is who in a data directory: its certificate authority, server certificate, signing key and bearer tokens.

Made once and kept (mode 0600), so that kubeconfigs and tokens stay valid across restarts. Each component of `haru up`
has a token, and so a user, of its own, with the rights of its role and no more; only the administrator may do all.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from haru.apiserver.bootstrap_roles import KUBELET_CLIENT
from haru.apiserver.certificates import Pair, client_pair, new_authority, new_key, server_pair
from haru.controllers.accounts import NAMESPACE, user_of
from haru.files import write_whole

ADMIN = "admin"
FRONT_PROXY = "front-proxy-client"
"""Whom the API server is to extension API servers."""
USERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    ADMIN: ("haru-admin", ("system:masters",)),
    "scheduler": ("system:kube-scheduler", ()),
    "controllers": ("system:kube-controller-manager", ()),
    "fleet": ("system:haru-fleet", ()),
    "driver": ("system:haru-driver", ()),
    "dashboard": ("system:haru-dashboard", ()),
    "accounting": ("system:haru-accounting", ()),
}


def controller_user(controller: str) -> tuple[str, tuple[str, ...]]:
    """User and groups of a controller: its ServiceAccount in kube-system."""
    return user_of(controller), ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}")


def node_user(node: str) -> tuple[str, tuple[str, ...]]:
    """User and groups of a node, as its kubelet has them."""
    return f"system:node:{node}", ("system:nodes",)


@dataclass(frozen=True, slots=True)
class Identity:
    """Files and secrets of one data directory. Tokens are by component (the keys of `USERS`)."""

    ca_pem: bytes
    ca_file: Path
    server_cert: Path
    server_key: Path
    signing_key_pem: bytes
    tokens: Mapping[str, str]
    kubelet_client: Pair
    """What the API server shows to kubelets; made anew at each start."""
    front_proxy_ca: bytes
    front_proxy_client: Pair
    """What the API server shows to extension API servers, from an authority of its own; made anew at each start."""


def ensure_identity(directory: Path, host: str) -> Identity:
    """The identity kept in `directory`; what is missing is made, and the server certificate is made to name `host`."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority = _authority(directory)
    cert, key, hosts = directory / "server.crt", directory / "server.key", directory / "server.hosts"
    if not (cert.exists() and key.exists() and hosts.exists() and host in hosts.read_text().split()):
        pair = server_pair(authority, (host,), datetime.now(UTC))
        write_whole(key, pair.key)
        write_whole(cert, pair.certificate)
        write_whole(hosts, host)
    signing = directory / "service-account.key"
    if not signing.exists():
        write_whole(signing, new_key())
    ca_file = directory / "ca.crt"
    tokens = _tokens(directory / "tokens.json")
    kubelet_client = client_pair(authority, KUBELET_CLIENT, (), datetime.now(UTC))
    front_proxy = _authority(directory, "front-proxy-ca")
    front_proxy_client = client_pair(front_proxy, FRONT_PROXY, (), datetime.now(UTC))
    return Identity(
        authority.certificate,
        ca_file,
        cert,
        key,
        signing.read_bytes(),
        tokens,
        kubelet_client,
        front_proxy.certificate,
        front_proxy_client,
    )


def _authority(directory: Path, name: str = "ca") -> Pair:
    certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
    if not (certificate.exists() and key.exists()):
        pair = new_authority(datetime.now(UTC), "haru" if name == "ca" else name)
        write_whole(key, pair.key)
        write_whole(certificate, pair.certificate)
    return Pair(certificate.read_bytes(), key.read_bytes())


def _tokens(path: Path) -> dict[str, str]:
    known: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    missing = [name for name in USERS if name not in known]
    if missing:
        known |= {name: secrets.token_urlsafe(32) for name in missing}
        write_whole(path, json.dumps(known, indent=1))
    return known
