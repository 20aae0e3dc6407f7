"""Who configures a policy with parameters must be able to read them: a policy would tell what they say.

Source: admissionregistration.k8s.io registry strategies, as behaviour.
"""

from __future__ import annotations

from haru.apiserver.admission.dynamic.params import param_resource
from haru.apiserver.auth.authorization import MASTERS, Authorizer
from haru.apiserver.auth.node_authorizer import Attributes
from haru.apiserver.request.call import Call
from haru.kube.errors import forbidden
from haru.kube.meta import Obj


async def check_kind(authorizer: Authorizer, call: Call, policy: Obj) -> None:
    """On create of a policy."""
    await check_kind_update(authorizer, call, policy, {})


async def check_kind_update(authorizer: Authorizer, call: Call, new: Obj, old: Obj) -> None:
    """On update: another kind of parameters needs the right to read all of them."""
    kind = new["spec"].get("paramKind")
    if kind is None or kind == (old.get("spec") or {}).get("paramKind") or _may_read(authorizer, call, kind, "*", "*"):
        return
    why = (
        f'user {_shown(call)} must have "get" permission on all objects of the referenced paramKind '
        f"(kind={kind.get('kind')}, apiVersion={kind.get('apiVersion')})"
    )
    raise call.invalid(new["metadata"]["name"], [forbidden("spec.paramKind", why)])


async def check_reference(authorizer: Authorizer, call: Call, binding: Obj) -> None:
    """On create of a binding."""
    await check_reference_update(authorizer, call, binding, {})


async def check_reference_update(authorizer: Authorizer, call: Call, new: Obj, old: Obj) -> None:
    """On update: another reference needs the right to read what it refers to."""
    ours, theirs = new["spec"], old.get("spec") or {}
    reference = ours.get("paramRef")
    names = ("paramRef", "policyName")
    if reference is None or all(ours.get(name) == theirs.get(name) for name in names):
        return
    group = call.resource.kind.group
    plural = call.resource.kind.plural.replace("policybindings", "policies")
    named = ours.get("policyName")
    policy = await call.objects.peek(group, plural, "", named) if named else None
    kind = (policy or {}).get("spec", {}).get("paramKind")
    if _may_read(authorizer, call, kind, reference.get("namespace") or "", reference.get("name") or ""):
        return
    why = f'user {_shown(call)} does not have "get" permission on the object referenced by paramRef'
    raise call.invalid(new["metadata"]["name"], [forbidden("spec.paramRef", why)])


def _may_read(authorizer: Authorizer, call: Call, kind: Obj | None, namespace: str, name: str) -> bool:
    user = call.request.user
    if MASTERS in user.groups:
        return True
    group = plural = "*"
    if kind is not None:
        group = str(kind.get("apiVersion") or "").rpartition("/")[0]
        resource = param_resource(call.objects, kind)
        plural = resource.kind.plural if resource is not None else "*"
    return authorizer.allowed(user, Attributes("get", group, plural, "", namespace, name))


def _shown(call: Call) -> str:
    user = call.request.user
    return f"&{{{user.name} {user.uid} [{' '.join(user.groups)}] map[]}}"
