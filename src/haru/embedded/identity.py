"""Who is who in a data directory: its certificate authority, server certificate, signing key and bearer tokens.

Made once and kept (mode 0600), so that kubeconfigs and tokens stay valid across restarts. Each component of `haru up`
has a token, and so a user, of its own, with the rights of its role and no more; only the administrator may do all.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from haru.apiserver.auth import (
    SERVICE_ADDRESS,
    Pair,
    PemError,
    client_pair,
    is_issued_by,
    is_valid_at,
    new_authority,
    new_key,
    read_key,
    read_pair,
    server_pair,
)
from haru.apiserver.bootstrap import KUBELET_CLIENT
from haru.apiserver.config import UserInfo
from haru.apiserver.server import ApiServer
from haru.client.api import ApiClient
from haru.client.asgi import Message
from haru.client.transforms import SharedObjects
from haru.embedded.errors import OptionError
from haru.embedded.users import ADMIN as ADMIN
from haru.embedded.users import FRONT_PROXY as FRONT_PROXY
from haru.embedded.users import USERS as USERS
from haru.embedded.users import controller_user as controller_user
from haru.embedded.users import node_user as node_user
from haru.files import write_whole

T = TypeVar("T")
_RENEWED_BEFORE = timedelta(days=60)
"""How long before the end of the server's certificate a start makes a new one, which lasts a year."""


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
    """Load the identity kept in `directory`; create what is missing, and a server certificate for `host`.

    Raises `OptionError` for a file that is damaged: whether what depends on it may go is not ours to say.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority = _authority(directory)
    cert, key = _server_files(directory, authority, host)
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
        _usable(lambda: read_key(signing), (signing,), "tokens of ServiceAccounts that were signed with it end"),
        tokens,
        kubelet_client,
        front_proxy.certificate,
        front_proxy_client,
    )


def _usable(read: Callable[[], T], files: Sequence[Path], loss: str) -> T:
    """Return what `read` returns; `loss` says what is lost if `files` are created again."""
    try:
        return read()
    except PemError as error:
        listed = " and ".join(map(str, files))
        fix = f"restore it from a backup, or remove {listed} to have new ones made ({loss})"
        raise OptionError(f"{error}; {fix}") from None


def _server_files(directory: Path, authority: Pair, host: str) -> tuple[Path, Path]:
    cert, key, hosts = directory / "server.crt", directory / "server.key", directory / "server.hosts"
    if cert.exists() and key.exists() and hosts.exists():
        pair = _usable(lambda: read_pair(cert, key), (cert, key), "nothing else is lost")
        named = hosts.read_text(errors="replace").split()
        lasts = is_valid_at(pair.certificate, datetime.now(UTC) + _RENEWED_BEFORE)
        if {host, SERVICE_ADDRESS} <= set(named) and is_issued_by(pair.certificate, authority.certificate) and lasts:
            return cert, key
    pair = server_pair(authority, (host,), datetime.now(UTC))
    write_whole(key, pair.key)
    write_whole(cert, pair.certificate)
    write_whole(hosts, f"{host} {SERVICE_ADDRESS}")
    return cert, key


def _authority(directory: Path, name: str = "ca") -> Pair:
    certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
    if not (certificate.exists() and key.exists()):
        pair = new_authority(datetime.now(UTC), "haru" if name == "ca" else name)
        write_whole(key, pair.key)
        write_whole(certificate, pair.certificate)
    loss = "copies of the kubeconfig and certificates that it signed end" if name == "ca" else "nothing else is lost"
    return _usable(lambda: read_pair(certificate, key), (certificate, key), loss)


def _tokens(path: Path) -> dict[str, str]:
    known = _usable(lambda: _read_tokens(path), (path,), "copies of the kubeconfig end") if path.exists() else {}
    missing = [name for name in USERS if name not in known]
    if missing:
        known |= {name: secrets.token_urlsafe(32) for name in missing}
        write_whole(path, json.dumps(known, indent=1))
    return known


def _read_tokens(path: Path) -> dict[str, str]:
    try:
        known = json.loads(path.read_bytes())
    except ValueError:
        known = None
    if not isinstance(known, dict) or not all(isinstance(token, str) and token for token in known.values()):
        raise PemError(path, "holds no tokens as JSON")
    return known


class ComponentClients:
    """Clients in process, each with the identity and the rights of one component; until they are `closed`."""

    def __init__(self, server: ApiServer, tokens: Mapping[str, str]) -> None:
        self._server = server
        self.tokens = tokens
        self._minted: dict[str, str] = {}
        self._clients: dict[str, ApiClient] = {}
        self._shared = SharedObjects()
        self._is_open = True

    def close(self) -> None:
        """Let no more requests through: whatever still writes then, as events are written, writes too late."""
        self._is_open = False

    def component(self, name: str) -> ApiClient:
        """The client of a component, or of the administrator."""
        return self._client(self.tokens[name], f"haru-{name}", shared=name != ADMIN)

    def controller(self, name: str) -> ApiClient:
        """The client of a controller, with the identity of its ServiceAccount."""
        return self._client(self.token("controller", name), "haru-controllers")

    def node(self, name: str) -> ApiClient:
        """The client of a node, with the identity of its kubelet."""
        return self._client(self.token("node", name), "haru-fleet")

    def token(self, kind: str, name: str) -> str:
        """The token of a controller or a node, which is only in memory and ends with the process."""
        user, groups = {"controller": controller_user, "node": node_user}[kind](name)
        token = self._minted.get(user)
        if token is None:
            token = self._minted[user] = secrets.token_urlsafe(32)
            self._server.admit(token, UserInfo(user, groups))
        return token

    def _client(self, token: str, agent: str, *, shared: bool = True) -> ApiClient:
        """A component changes no object that it was given; who uses the administrator's client may."""
        client = self._clients.get(token)
        if client is None:
            common = self._shared if shared else None
            client = self._clients[token] = ApiClient.in_process(self._serve, token, agent, shared=common)
        return client

    async def _serve(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        if not self._is_open:
            raise ConnectionResetError("the API server stops")
        await self._server(scope, receive, send)
