"""Nobody gives what he does not hold: roles and bindings may only grant what their writer may do.

`escalate` on the role, or `bind` on the role that is referred to, lift the rule.
Source: rbac.authorization.k8s.io's policy-based storage, as behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence

from haru.apiserver.auth.authorization import Authorizer
from haru.apiserver.auth.node_authorizer import Attributes
from haru.apiserver.request.call import Call
from haru.kube.errors import StatusError, forbidden_error, not_found_error
from haru.kube.meta import Obj

_GROUP = "rbac.authorization.k8s.io"
_EVERYTHING: list[Obj] = [
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
]
_KINDS = ("Role", "ClusterRole")
_UNJUDGED = {"ownerReferences", "finalizers", "selfLink", "managedFields"}
_COUNTED = ("uid", "resourceVersion", "creationTimestamp")


async def check_role(authorizer: Authorizer, call: Call, new: Obj, old: Obj) -> None:
    """A Role or ClusterRole: all is judged but what lets it go; a label, too, may give its rules to others."""
    if _lets_go(call, new, old):
        return
    user, name = call.request.user, new["metadata"].get("name") or ""
    # By the name in the path, which there is none of on create: a right to some names is no right to make them.
    plural = call.resource.kind.plural
    if authorizer.allowed(user, Attributes("escalate", _GROUP, plural, "", call.namespace, call.name)):
        return
    missing = authorizer.covers(user, new.get("rules") or [], call.namespace)
    if missing:
        raise _refusal(call, name, missing)
    # What an aggregated role will come to grant is not known yet: only who holds everything may make or change one.
    is_aggregated = any((role.get("aggregationRule") or {}).get("clusterRoleSelectors") for role in (new, old))
    if is_aggregated and authorizer.covers(user, _EVERYTHING, call.namespace):
        why = "must have cluster-admin privileges to use the aggregationRule"
        raise forbidden_error(_GROUP, plural, name, why)


def _lets_go(call: Call, new: Obj, old: Obj) -> bool:
    """Whether an update changes no more than what an object needs to be collected as garbage.

    A body without what the server sets is another one, as in 1.36: it is compared before the server fills that in.
    """
    is_whole = bool(old) and all(call.given.get(name) == old["metadata"].get(name) for name in _COUNTED)
    return is_whole and _judged(new) == _judged(old)


def _judged(obj: Obj) -> Obj:
    """A role or binding without what it needs to be collected as garbage."""
    metadata = {name: value for name, value in (obj.get("metadata") or {}).items() if value and name not in _UNJUDGED}
    return {**{name: value for name, value in obj.items() if value}, "metadata": metadata}


async def check_binding(authorizer: Authorizer, call: Call, new: Obj, old: Obj) -> None:
    """A RoleBinding or ClusterRoleBinding: all is judged but what lets it go (its role cannot change)."""
    if _lets_go(call, new, old):
        return
    user = call.request.user
    reference = new.get("roleRef") or {}
    kind, role = reference.get("kind", ""), reference.get("name", "")
    plural = "clusterroles" if kind == "ClusterRole" else "roles"
    if authorizer.allowed(user, Attributes("bind", _GROUP, plural, "", call.namespace, role)):
        return
    rules = authorizer.role_rules(reference, call.namespace)
    if rules is None:
        if not role or "/" in role or kind not in _KINDS:
            return  # validation says what is wrong; it grants nothing
        raise not_found_error(_GROUP, plural, role)
    missing = authorizer.covers(user, rules, call.namespace)
    if missing:
        raise _refusal(call, new["metadata"].get("name") or "", missing)


def _refusal(call: Call, name: str, missing: Sequence[Obj]) -> StatusError:
    user, kind = call.request.user, call.resource.kind
    groups = " ".join(f'"{group}"' for group in user.groups)
    listed = "\n".join(sorted({_rule_text(rule) for rule in missing}))
    why = (
        f'user "{user.name}" (groups=[{groups}]) is attempting to grant RBAC permissions not currently held:\n{listed}'
    )
    return forbidden_error(kind.group, kind.plural, name, why)


_NAMES = {
    "apiGroups": "APIGroups",
    "resources": "Resources",
    "resourceNames": "ResourceNames",
    "nonResourceURLs": "NonResourceURLs",
    "verbs": "Verbs",
}


def _rule_text(rule: Obj) -> str:
    parts = []
    for name, shown in _NAMES.items():
        if rule.get(name):
            values = " ".join(f'"{value}"' for value in rule[name])
            parts.append(f"{shown}:[{values}]")
    return "{" + ", ".join(parts) + "}"
