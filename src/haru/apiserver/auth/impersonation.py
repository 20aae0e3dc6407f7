"""Speaking for another: the `Impersonate-*` headers, and who may send which.

The right to speak for somebody can be bound to what is done in his name (KEP 5284): a mode asks for the verb
`impersonate:MODE` on whom, and for `impersonate-on:MODE:VERB` on what the request is about. There is one for nodes (of
an account on that node, and of any node), for accounts, and for other users; after these comes the older right
`impersonate`, which holds for all requests. The mode in which a user spoke last is tried first; of what stood against
him he is told the first.
Source: k8s.io/apiserver `filters/impersonation`, as behaviour.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from urllib.parse import unquote

from cachetools import LRUCache

from haru.apiserver.auth.authorization import MASTERS, Authorizer, Decision, path_refusal, refusal, selected
from haru.apiserver.auth.impersonation_metrics import ImpersonationMetrics
from haru.apiserver.auth.node_authorizer import NODES, PREFIX, Attributes
from haru.apiserver.auth.user import ANONYMOUS, AUTHENTICATED, UserInfo
from haru.apiserver.peers.routes import ResourceRequest, resource_request_of
from haru.apiserver.request.http import Request
from haru.errors import raise_first
from haru.kube import names
from haru.kube.errors import StatusError, bad_request_error, invalid

_ACCOUNT = "system:serviceaccount:"
_NODE_OF_ACCOUNT = "authentication.kubernetes.io/node-name"
_UNAUTHENTICATED = ANONYMOUS.groups[0]
_REMEMBERED = 10_000
_AUTHENTICATION = "authentication.k8s.io"
_VERBS = {
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
    "GET": "get",
    "HEAD": "get",
}
_LEGACY = ""
"""The mode in which the verb is `impersonate`."""


_MANY = 4
"""For so many groups, or extras, the right to all of them is asked for first."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A right that is needed: the question to the authorizer, or a refusal that nobody is asked about."""

    attributes: Attributes
    why_not: str = ""


def _is_bare(wanted: UserInfo) -> bool:
    return not (wanted.uid or wanted.groups or wanted.extra)


def _node(name: str) -> str:
    """The node that a user is; empty if he is none."""
    node = name.removeprefix(PREFIX) if name.startswith(PREFIX) else ""
    return node if node and not names.is_dns1123_subdomain(node) else ""


def _account(name: str) -> tuple[str, str] | None:
    """Namespace and name of the account that a user is."""
    parts = name.removeprefix(_ACCOUNT).split(":") if name.startswith(_ACCOUNT) else []
    if len(parts) != 2 or names.is_dns1123_label(parts[0]) or names.is_dns1123_subdomain(parts[1]):
        return None
    return parts[0], parts[1]


def _is_associated(wanted: UserInfo, requestor: UserInfo) -> bool:
    node = _node(wanted.name)
    given = list(requestor.extra.get(_NODE_OF_ACCOUNT) or ())
    return _is_bare(wanted) and bool(node) and _account(requestor.name) is not None and given == [node]


_MODES: tuple[tuple[str, Callable[[UserInfo, UserInfo], bool]], ...] = (
    ("associated-node", _is_associated),
    ("arbitrary-node", lambda wanted, _: _is_bare(wanted) and bool(_node(wanted.name))),
    ("serviceaccount", lambda wanted, _: _is_bare(wanted) and _account(wanted.name) is not None),
    ("user-info", lambda wanted, _: not _node(wanted.name) and _account(wanted.name) is None),
    (_LEGACY, lambda wanted, _: True),
)


class Impersonation:
    """Let users of one server speak for others."""

    def __init__(self, authorizer: Authorizer, *, constrained: bool) -> None:
        self._authorizer = authorizer
        self.metrics = ImpersonationMetrics() if constrained else None
        self._modes = _MODES if constrained else _MODES[-1:]
        self._last: LRUCache[str, int] = LRUCache(_REMEMBERED)
        """The mode in which a user spoke for another last."""

    def apply(self, request: Request) -> str | None:
        """Set the user that the request's user speaks for; the verb that allowed it, None where nobody is meant.

        Raises 403 for who may not.
        """
        if not any(key.startswith(b"impersonate-") for key in request.headers):
            return None
        try:
            return self._applied(request)
        except StatusError:
            request.is_turned_away = True
            raise

    def _applied(self, request: Request) -> str | None:
        wanted = _wanted(request)
        if wanted is None:
            return None
        requestor, refused, begun = request.user, list[StatusError](), perf_counter()
        last = self._last.get(requestor.name)
        for place in dict.fromkeys((*(() if last is None else (last,)), *range(len(self._modes)))):
            mode, applies = self._modes[place]
            if not applies(wanted, requestor):
                continue
            error = self._refusal(mode, wanted, request)
            if error is None:
                self._last[requestor.name] = place
                request.user = _as_user(wanted, mode)
                self._count_attempt(mode or "legacy", begun, allowed=True)
                return f"impersonate:{mode}" if mode else ""
            refused.append(error)
        self._count_attempt("", begun, allowed=False)
        raise_first(refused)
        return None

    def _count_attempt(self, mode: str, begun: float, *, allowed: bool) -> None:
        if self.metrics is not None:
            self.metrics.attempts.add(mode, perf_counter() - begun, allowed=allowed)

    def _refusal(self, mode: str, wanted: UserInfo, request: Request) -> StatusError | None:
        """What stands against it in a mode."""
        user = request.user
        if mode and (error := self._refusal_on(mode, request)) is not None:
            return error
        for whole, each in _rights(mode, wanted):
            if whole is not None and self._decision(mode, user, whole):
                continue
            for asked in each:
                why_not = asked.why_not
                decision = Decision(False, why_not) if why_not else self._decision(mode, user, asked.attributes)
                if not decision:
                    return refusal(user, asked.attributes, decision)
        return None

    def _decision(self, mode: str, user: UserInfo, asked: Attributes | tuple[str, str]) -> Decision:
        """What the authorizer says, of a resource or of a verb and a path; counted."""
        begun = perf_counter()
        decide, decide_path = self._authorizer.decide, self._authorizer.decide_path
        decision = decide(user, asked) if isinstance(asked, Attributes) else decide_path(user, *asked)
        if self.metrics is not None:
            self.metrics.checks.add(mode or "legacy", perf_counter() - begun, allowed=decision.allowed)
        return decision

    def _refusal_on(self, mode: str, request: Request) -> StatusError | None:
        """What stands against the request itself, whoever it is for."""
        user, prefix = request.user, f"impersonate-on:{mode}:"
        asked = resource_request_of(request.path)
        if asked is None:
            verb = prefix + request.method.lower()
            decision = self._decision(mode, user, (verb, request.path))
            return None if decision else path_refusal(user, verb, request.path, decision)
        group, _, plural = asked.gvr
        verb, name = _verb_and_name(request, asked)
        namespace = asked.name if plural == "namespaces" else asked.namespace
        attributes = Attributes(prefix + verb, group, plural, asked.subresource, namespace, name)
        decision = self._decision(mode, user, attributes)
        return None if decision else refusal(user, attributes, decision)


def _verb_and_name(request: Request, asked: ResourceRequest) -> tuple[str, str]:
    """The verb of a request for a resource, served here or not, and whom it is about."""
    verb, name = _VERBS.get(request.method, ""), asked.name
    if asked.watch and verb == "get":
        verb = "watch"
    if name or verb not in ("get", "watch", "delete"):
        return verb, name
    if verb == "delete":
        return "deletecollection", ""
    return "watch" if verb == "watch" or request.flag("watch") else "list", selected(request)[0]


def _rights(mode: str, wanted: UserInfo) -> Iterable[tuple[Attributes | None, Iterable[_Asked]]]:
    """The rights to each part of an identity; of one with many members, first the right that does for all."""
    verb = f"impersonate:{mode}" if mode else "impersonate"
    group = _AUTHENTICATION if mode else ""
    about = Attributes(verb, group, "users", "", "", wanted.name)
    if mode and (node := _node(wanted.name)):
        about = replace(about, resource="nodes", name="*" if mode == "associated-node" else node)
    if account := _account(wanted.name):
        about = replace(about, resource="serviceaccounts", namespace=account[0], name=account[1])
    yield None, [_Asked(about)]
    if wanted.uid:
        yield None, [_Asked(Attributes(verb, _AUTHENTICATION, "uids", "", "", wanted.uid))]
    of_groups = Attributes(verb, group, "groups")
    if mode and "" in wanted.groups:
        yield None, [_Asked(of_groups, "impersonating the empty string group is not allowed")]
    if mode and MASTERS in wanted.groups:
        why = "impersonating the system:masters group is not allowed"
        yield None, [_Asked(replace(of_groups, name=MASTERS), why)]
    whole = replace(of_groups, name="*") if mode and len(wanted.groups) >= _MANY else None
    yield whole, [_Asked(replace(of_groups, name=one)) for one in wanted.groups]
    of_extra = Attributes(verb, _AUTHENTICATION, "userextras")
    for key, values in wanted.extra.items() if mode else ():
        if why := _no_extra(key, values):
            yield None, [_Asked(of_extra, why)]
    each = [(key, value) for key, values in wanted.extra.items() for value in values]
    whole = replace(of_extra, subresource="*", name="*") if mode and len(each) >= _MANY else None
    yield whole, [_Asked(replace(of_extra, subresource=key, name=value)) for key, value in each]


def _no_extra(key: str, values: Sequence[str]) -> str:
    """Why nobody may speak with more than a name like this; empty where somebody may."""
    if not key:
        return "impersonating the empty string key in extra is not allowed"
    domain, _, path = key.partition("/")
    wrong = key if not domain or not path else domain
    why = ['must be a domain-prefixed path (such as "acme.io/foo")'] if wrong == key else []
    why = why or names.is_dns1123_subdomain(domain)
    if why:
        return f"impersonating an invalid key in extra is not allowed: {invalid('extra.key', wrong, why[0])}"
    return "impersonating the empty string value in extra is not allowed" if "" in values else ""


def _as_user(wanted: UserInfo, mode: str) -> UserInfo:
    """The user with the groups that come with his name."""
    groups = list(wanted.groups)
    if mode and _node(wanted.name):
        groups = [NODES]
    elif (account := _account(wanted.name)) and not groups:
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{account[0]}"]
    more = _UNAUTHENTICATED if wanted.name == ANONYMOUS.name else AUTHENTICATED
    if more not in groups and _UNAUTHENTICATED not in groups:
        groups.append(more)
    return replace(wanted, groups=tuple(groups))


def _wanted(request: Request) -> UserInfo | None:
    """The identity that the headers name; 400 for parts of one without a name."""
    headers: Iterable[tuple[bytes, bytes]] = request.scope["headers"]
    groups: list[str] = []
    extra: dict[str, list[str]] = {}
    for key, value in headers:
        text = value.decode("utf-8", "replace")
        if key == b"impersonate-group":
            groups.append(text)
        elif key.startswith(b"impersonate-extra-"):
            extra.setdefault(unquote(key.removeprefix(b"impersonate-extra-").decode("latin-1")), []).append(text)
    name = request.headers.get(b"impersonate-user", b"").decode("utf-8", "replace")
    wanted = UserInfo(name, tuple(groups), request.header(b"impersonate-uid"), extra)
    if name:
        return wanted
    if _is_bare(wanted):
        return None
    raise bad_request_error(f"requested {_go_text(wanted)} without impersonating a user name")


def _go_text(wanted: UserInfo) -> str:
    def listed(values: Iterable[str]) -> str:
        return "[]string{" + ", ".join(map(json.dumps, values)) + "}"

    groups = listed(wanted.groups) if wanted.groups else "[]string(nil)"
    extra = "map[string][]string(nil)"
    if wanted.extra:
        pairs = ", ".join(f"{json.dumps(key)}:{listed(values)}" for key, values in sorted(wanted.extra.items()))
        extra = f"map[string][]string{{{pairs}}}"
    return f'&user.DefaultInfo{{Name:"", UID:{json.dumps(wanted.uid)}, Groups:{groups}, Extra:{extra}}}'
