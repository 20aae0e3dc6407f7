"""May this user do this verb to this resource: the node authorizer is asked first, then RBAC.

RBAC goes by the stored roles and bindings, which are kept compiled (`role_bindings.py`). Cursors in the store's history
tell, before each request, what has changed; so a binding counts from the moment its write was acknowledged.
Source: rbac.authorization.k8s.io/v1, as behaviour.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from cachetools import FIFOCache

from haru.apiserver.auth.node_authorizer import Attributes, NodeAuthorizer, node_of
from haru.apiserver.auth.role_bindings import GROUP, PLURALS, RoleBindings, Rule
from haru.apiserver.auth.user import UserInfo
from haru.apiserver.object_store import ObjectStore
from haru.apiserver.peers.routes import ResourceRequest
from haru.apiserver.registry.store_reflector import StoreReflector
from haru.apiserver.request.call import Call
from haru.apiserver.request.http import Request
from haru.errors import raise_first
from haru.kube.errors import StatusError, aggregate, forbidden_error
from haru.kube.meta import Obj
from haru.kube.selectors import parse_field_selector, parse_label_selector

MASTERS = "system:masters"
_LOG = logging.getLogger("haru.apiserver")
_REMEMBERED_DECISIONS = 4_096


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a request is allowed, and why, or what stood against it; false when it is not."""

    allowed: bool
    reason: str = ""

    def __bool__(self) -> bool:
        return self.allowed


def refusal(user: UserInfo, asked: Attributes, decision: Decision, named: str | None = None) -> StatusError:
    """403 for a user; `named`: the name for the message, if it is another one."""
    resource = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
    where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    why = f'User "{user.name}" cannot {asked.verb} resource "{resource}" in API group "{asked.group}" {where}'
    why = f"{why}: {decision.reason}" if decision.reason else why
    return forbidden_error(asked.group, asked.resource, asked.name if named is None else named, why)


def path_refusal(user: UserInfo, verb: str, path: str, decision: Decision) -> StatusError:
    """403 for a user and a path that is no resource."""
    why = f'forbidden: User "{user.name}" cannot {verb} path "{path}"'
    return StatusError(403, "Forbidden", f"{why}: {decision.reason}" if decision.reason else why)


class Authorizer:
    """Decides from the store; synchronous, since every request passes here."""

    def __init__(self, objects: ObjectStore) -> None:
        self._bindings = RoleBindings()
        self._followed = StoreReflector(objects, GROUP, PLURALS, self._bindings.change)
        self._decided: FIFOCache[tuple[object, ...], Decision] = FIFOCache(_REMEMBERED_DECISIONS)
        """What is allowed, by user and request, where no rule for certain names had to be looked at."""
        self._nodes = NodeAuthorizer(objects)

    async def start(self) -> None:
        """Read the roles and bindings, and follow them from there."""
        await self._followed.start()

    def allowed(self, user: UserInfo, asked: Attributes) -> bool:
        """Whether a user may do something to a resource; of nodes, `prepare` must have been awaited."""
        return self.decide(user, asked).allowed

    async def prepare(self, user: UserInfo, asked: Attributes) -> None:
        """Take in what the judgement of a node needs to know beyond roles; for others this is nothing."""
        if node_of(user):
            await self._nodes.refresh(asked)

    def decide(self, user: UserInfo, asked: Attributes) -> Decision:
        """As `allowed`, with the reason."""
        if MASTERS in user.groups:
            return Decision(True)
        node = node_of(user)
        refusal = self._nodes.refusal(node, asked) if node is not None else ""
        if refusal is None:
            return Decision(True)
        resource = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
        key = user.name, user.groups, asked.verb, asked.group, resource, asked.namespace
        known = self._decided.get(key)
        if known is not None:
            return known
        by_name = False
        for bound in self._bindings.deciding(user, asked.namespace):
            for rule in bound.rules:
                if not rule.covers(asked.verb, asked.group, resource):
                    continue
                by_name = by_name or bool(rule.names)
                if not rule.names or asked.name in rule.names:
                    decision = Decision(True, bound.why())
                    if not by_name:
                        self._decided[key] = decision
                    return decision
        return Decision(False, "\n".join(filter(None, (refusal, self._why_not(user, asked.namespace)))))

    def decide_path(self, user: UserInfo, verb: str, path: str) -> Decision:
        """Whether a user may ask for a path that is no resource, and why."""
        if MASTERS in user.groups:
            return Decision(True)
        for bound in self._bindings.deciding(user, ""):
            if any(rule.allows_path(verb, path) for rule in bound.rules):
                return Decision(True, bound.why())
        return Decision(False, self._why_not(user, ""))

    def missing_roles(self, user: UserInfo, namespace: str) -> list[str]:
        """Which roles that the user is bound to are not there, as the API server says it."""
        return list(
            dict.fromkeys(bound.missing() for bound in self._bindings.deciding(user, namespace) if bound.is_broken)
        )

    def _why_not(self, user: UserInfo, namespace: str) -> str:
        missing = self.missing_roles(user, namespace)
        return f"RBAC: {aggregate(missing)}" if missing else ""

    def rules(self, user: UserInfo, namespace: str) -> list[Obj]:
        """Every rule of a role that applies to the user in a namespace, as stored; masters need none."""
        return [rule.source for rules in self._rules(user, namespace) for rule in rules]

    def covers(self, user: UserInfo, rules: Sequence[Obj], namespace: str) -> list[Obj]:
        """What of the rules the user does not hold, a rule for each resource; granting it would be an escalation."""
        if MASTERS in user.groups:
            return []
        held = [rule for bound in self._rules(user, namespace) for rule in bound]
        return [missing for rule in _by_resource(rules) if (missing := _not_held(rule, held))["verbs"]]

    def role_rules(self, reference: Obj, namespace: str) -> list[Obj] | None:
        """The rules of the role that a binding refers to; None when it does not exist."""
        found = self._bindings.role_rules(reference, namespace)
        return [rule.source for rule in found] if found is not None else None

    def _rules(self, user: UserInfo, namespace: str) -> Iterator[tuple[Rule, ...]]:
        return (bound.rules for bound in self._bindings.of(user, namespace))

    async def refresh(self) -> None:
        """Take in what has changed; every request does so before it is judged."""
        if await self._followed.take_in():
            self._decided = FIFOCache(_REMEMBERED_DECISIONS)


class RequestAuthorizer:
    """Authorize requests: note the decision for the audit log, count it, and raise 403 for a refusal."""

    def __init__(self, authorizer: Authorizer, count: Callable[[bool], None]) -> None:
        self._authorizer = authorizer
        self._count = count

    async def authorize(self, call: Call) -> None:
        """Authorize a request for a resource that this server serves."""
        kind = call.resource.kind
        if self._is_master(call.request):
            return
        # A request for a namespace is one in it: who may read everything in a namespace may read the namespace.
        namespace = call.name if (kind.group, kind.plural) == ("", "namespaces") else call.namespace
        name, node = _name_and_node(call.request, call.verb, call.name)
        asked = Attributes(call.verb, kind.group, kind.plural, call.subresource, namespace, name, node)
        await self.permit(call.request, asked)

    async def authorize_asked(self, request: Request, verb: str, asked: ResourceRequest) -> None:
        """Authorize a request for a resource that another server serves."""
        if not self._is_master(request):
            name, node = _name_and_node(request, verb, asked.name)
            group, _, plural = asked.gvr
            namespace = name if plural == "namespaces" else asked.namespace
            attributes = Attributes(verb, group, plural, asked.subresource, namespace, name, node)
            await self.permit(request, attributes)

    async def permit(self, request: Request, asked: Attributes, named: str | None = None) -> None:
        """Authorize a request with these attributes; `named`: the name for the error, if it is another one."""
        user = request.user
        await self._authorizer.prepare(user, asked)
        decision = self._authorizer.decide(user, asked)
        request.judged(decision.allowed, decision.reason)
        self._count(decision.allowed)
        if decision:
            return
        refused = [refusal(user, asked, decision, named)]
        _LOG.info("forbidden: %s", refused[0].message)
        raise_first(refused)

    def permit_path(self, request: Request, path: str, *, is_open: bool) -> None:
        """Authorize a request for a path that is no resource."""
        user = request.user
        verb = request.method.lower()
        decision = Decision(True) if is_open else self._authorizer.decide_path(user, verb, path)
        request.judged(decision.allowed, decision.reason)
        self._count(decision.allowed)
        if decision:
            return
        raise path_refusal(user, verb, path, decision)

    def _is_master(self, request: Request) -> bool:
        if MASTERS not in request.user.groups:
            return False
        request.judged(True, "")
        self._count(True)
        return True


def _name_and_node(request: Request, verb: str, name: str) -> tuple[str, str]:
    """The one name that a request is for, by its path or its selector, and the one node."""
    if name or verb not in ("list", "watch", "deletecollection"):
        return name, ""
    selected_name, node = selected(request)
    return (selected_name if verb != "deletecollection" else ""), node


def selected(request: Request) -> tuple[str, str]:
    """The one name that a list or watch selects, which rules with resourceNames cover, and the one `spec.nodeName`."""
    text = request.param("fieldSelector") if request.query else ""
    if not text:
        return "", ""
    try:
        fields = parse_field_selector(text)
        parse_label_selector(request.param("labelSelector"))
        for name in ("timeoutSeconds", "limit"):
            request.number(name)
    except StatusError:
        return "", ""  # who may ask at all is told what cannot be read
    return fields.exact("metadata.name") or "", fields.exact("spec.nodeName") or ""


def _by_resource(rules: Iterable[Obj]) -> Iterator[Obj]:
    """The rules taken apart: each about one resource or one of its names, with all its verbs, or about one path."""
    found: dict[tuple[str, str, str], Obj] = {}
    for rule in rules:
        places = product(rule.get("apiGroups") or (), rule.get("resources") or (), rule.get("resourceNames") or ("",))
        for group, resource, name in places:
            about = {"apiGroups": [group], "resources": [resource]} | ({"resourceNames": [name]} if name else {})
            found.setdefault((group, resource, name), {**about, "verbs": []})["verbs"] += rule.get("verbs") or ()
        for path, verb in product(rule.get("nonResourceURLs") or (), rule.get("verbs") or ()):
            yield {"nonResourceURLs": [path], "verbs": [verb]}
    yield from found.values()


def _not_held(wanted: Obj, held: Sequence[Rule]) -> Obj:
    """The rule with those of its verbs that no rule that is held grants."""
    if "nonResourceURLs" in wanted:
        (path,) = wanted["nonResourceURLs"]
        verbs = [verb for verb in wanted["verbs"] if not any(rule.allows_path(verb, path) for rule in held)]
    else:
        (group,), (resource,), (name,) = wanted["apiGroups"], wanted["resources"], wanted.get("resourceNames", [""])
        verbs = [
            verb for verb in wanted["verbs"] if not any(_grants(rule, verb, group, resource, name) for rule in held)
        ]
    return {**wanted, "verbs": verbs}


def _grants(rule: Rule, verb: str, group: str, resource: str, name: str) -> bool:
    # A rule without names grants all of them; one with names can not cover a wish for all.
    if rule.names and (not name or name not in rule.names):
        return False
    return rule.allows(verb, group, resource, name)
