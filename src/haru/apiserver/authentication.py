"""Who a request is from: a static token, a ServiceAccount's token, a client certificate; else nobody.

An identity may speak for another with the `Impersonate-*` headers; the authorizer is asked for that right.
Source: Kubernetes authentication; ServiceAccount tokens as bound tokens (KEP 1205).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

from haru.apiserver.config import ANONYMOUS, UserInfo
from haru.apiserver.core import Core
from haru.apiserver.http import Request
from haru.apiserver.tokens import verify
from haru.kube.errors import StatusError, forbidden_error, unauthorized_error

AUTHENTICATED = "system:authenticated"
PEER = "haru.peer"
"""The ASGI extension in which the HTTP server reports the subject of a verified client certificate."""
_OPEN_PREFIXES = ("/healthz", "/livez", "/readyz", "/version")


class Authenticator:
    """Finds the user of a request."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._tokens = {token: with_group(user) for token, user in core.config.tokens.items()}

    async def authenticate(self, request: Request) -> None:
        """Set the request's user; 401 for bad credentials, and for none where some are needed."""
        header = request.headers.get(b"authorization")
        if header is not None:
            request.user = await self.user_of_token(bearer(header))
        elif (certified := user_of_certificate(request.scope)) is not None:
            request.user = certified
        else:
            if not request.path.startswith(_OPEN_PREFIXES):
                raise unauthorized_error()
            request.user = ANONYMOUS
        if b"impersonate-user" in request.headers:
            request.user = self._impersonated(request)

    async def user_of_token(self, token: str) -> UserInfo:
        """The user that a bearer token stands for; 401 when there is none."""
        user = self._tokens.get(token)
        if user is not None:
            return user
        user = await verify(self._core, token)
        if user is None:
            raise unauthorized_error()
        return user

    def _impersonated(self, request: Request) -> UserInfo:
        wanted = _wanted_identity(request)
        authorizer = self._core.authorizer
        assert authorizer is not None
        for resource, name, group, sub in _impersonation_checks(wanted):
            if not authorizer.allowed(request.user, "impersonate", group, resource, sub, _namespace(wanted), name):
                why = f'User "{request.user.name}" cannot impersonate resource "{resource}" in API group "{group}"'
                raise _impersonation_refused(resource, name, group, why)
        return with_group(wanted)


def bearer(header: bytes) -> str:
    """The token of an Authorization header; 401 for another scheme."""
    scheme, _, token = header.decode("latin-1").strip().partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise unauthorized_error()
    return token.strip()


def with_group(user: UserInfo) -> UserInfo:
    """The user as a member of all who are authenticated."""
    if AUTHENTICATED in user.groups or user.name == ANONYMOUS.name:
        return user
    return UserInfo(user.name, (*user.groups, AUTHENTICATED), user.uid, user.extra)


def user_of_certificate(scope: Any) -> UserInfo | None:
    """The user of a verified client certificate: its common name, and its organizations as groups."""
    peer = (scope.get("extensions") or {}).get(PEER)
    if not peer or not peer["names"]:
        return None
    return with_group(UserInfo(peer["names"][0], tuple(peer["organizations"])))


def _wanted_identity(request: Request) -> UserInfo:
    headers: Iterable[tuple[bytes, bytes]] = request.scope["headers"]
    groups: list[str] = []
    extra: dict[str, list[str]] = {}
    for key, value in headers:
        text = value.decode("latin-1")
        if key == b"impersonate-group":
            groups.append(text)
        elif key.startswith(b"impersonate-extra-"):
            extra.setdefault(unquote(key.removeprefix(b"impersonate-extra-").decode("latin-1")), []).append(text)
    name = request.header(b"impersonate-user")
    if not groups and name.startswith("system:serviceaccount:") and name.count(":") == 3:
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{name.split(':')[2]}"]
    return UserInfo(name, tuple(groups), request.header(b"impersonate-uid"), extra)


def _impersonation_checks(wanted: UserInfo) -> list[tuple[str, str, str, str]]:
    """(resource, name, group, subresource) that must all be allowed."""
    if wanted.name.startswith("system:serviceaccount:") and wanted.name.count(":") == 3:
        return [("serviceaccounts", wanted.name.split(":")[3], "", "")]
    checks = [("users", wanted.name, "", "")]
    checks += [("groups", group, "", "") for group in wanted.groups]
    if wanted.uid:
        checks.append(("uids", wanted.uid, "authentication.k8s.io", ""))
    for key, values in wanted.extra.items():
        checks += [("userextras", value, "authentication.k8s.io", key) for value in values]
    return checks


def _namespace(wanted: UserInfo) -> str:
    return wanted.name.split(":")[2] if wanted.name.startswith("system:serviceaccount:") else ""


def _impersonation_refused(resource: str, name: str, group: str, why: str) -> StatusError:
    return forbidden_error(group, resource, name, f"{why} at the cluster scope")
