"""ResourceClaims: admin access needs a labelled namespace (KEP 5018), and status writers need the right to
allocate or to speak for a driver (DRAResourceClaimGranularStatusAuthorization)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from haru.apiserver.auth.authorization import Authorizer, refusal
from haru.apiserver.auth.node_authorizer import Attributes
from haru.apiserver.request.call import Call
from haru.kube.errors import FieldError, forbidden, internal_error
from haru.kube.meta import Obj, allocation_of
from haru.kube.validation.common import same

_GROUP, _CLAIMS = "resource.k8s.io", "resourceclaims"
ADMIN_LABEL = "resource.kubernetes.io/admin-access"
NODE_NAME_EXTRA = "authentication.kubernetes.io/node-name"
_WHY = f"admin access to devices requires the `{ADMIN_LABEL}: true` label on the containing namespace"


async def require_admin_namespace(call: Call, obj: Obj) -> None:
    """On create of a claim or a template."""
    spec = obj.get("spec") or {}
    if obj["kind"] == "ResourceClaimTemplate":
        spec = spec.get("spec") or {}
    requests = (spec.get("devices") or {}).get("requests") or ()
    fields = [
        f"spec.devices.requests[{index}].adminAccess"  # in every version, of templates too
        for index, request in enumerate(requests)
        if (request.get("exactly") or request).get("adminAccess")
    ]
    await _require(call, fields[:1])  # the first one is told, as in 1.36


async def require_admin_namespace_for_status(call: Call, new: Obj, old: Obj) -> None:
    """On a status write that brings the first results with admin access."""
    if not any(r.get("adminAccess") for r in _results(old)):
        fields = [
            f"status.allocation.devices.results[{index}].adminAccess"
            for index, result in enumerate(_results(new))
            if result.get("adminAccess")
        ]
        await _require(call, fields[:1])  # the first one is told, as in 1.36


def _results(claim: Obj) -> list[Obj]:
    allocation = allocation_of(claim) or {}
    return (allocation.get("devices") or {}).get("results") or []


async def _require(call: Call, fields: list[str]) -> None:
    if not fields:
        return
    namespace = await call.objects.peek("", "namespaces", "", call.namespace)
    if namespace is None:
        raise internal_error(f"could not retrieve namespace {call.namespace} to verify admin access")
    if (namespace["metadata"].get("labels") or {}).get(ADMIN_LABEL) != "true":
        call.findings += [forbidden(field, _WHY) for field in fields]


async def authorize_status(authorizer: Authorizer, call: Call, new: Obj, old: Obj) -> None:
    """Allocating and reserving need `resourceclaims/binding`, device statuses `resourceclaims/driver` per driver.

    What a driver said of devices goes with their allocation; who takes that away need not speak for the driver.
    """
    if not call.objects.gates.enabled("DRAResourceClaimGranularStatusAuthorization"):
        return
    after, before = new.get("status") or {}, old.get("status") or {}
    errors: list[FieldError] = []
    allocated = after.get("allocation") is not None  # an allocation may be empty
    reallocated = allocated != (before.get("allocation") is not None)
    if reallocated or not all(same(after.get(name), before.get(name)) for name in ("allocation", "reservedFor")):
        what = "status.allocation or status.reservedFor"
        asked = Attributes(call.verb, _GROUP, _CLAIMS, "binding")
        errors += await _check(authorizer, call, "status.allocation", what, [asked])
    if call.objects.gates.enabled("DRAResourceClaimDeviceStatus") and allocated:
        verbs = [f"arbitrary-node:{call.verb}"]
        if _is_on_the_claims_node(call, new):
            verbs.insert(0, f"associated-node:{call.verb}")
        for driver in sorted(_touched_drivers(after.get("devices") or (), before.get("devices") or ())):
            rights = [Attributes(verb, _GROUP, _CLAIMS, "driver", call.namespace, driver) for verb in verbs]
            errors += await _check(authorizer, call, "status.devices", "status.devices", rights)
    if errors:
        raise call.invalid(call.name, errors)


def _device_key(entry: Obj) -> tuple[str, str, str, str]:
    return (entry.get("driver", ""), entry.get("pool", ""), entry.get("device", ""), entry.get("shareID") or "")


def _touched_drivers(after: Iterable[Obj], before: Iterable[Obj]) -> set[str]:
    new, old = {_device_key(e): e for e in after}, {_device_key(e): e for e in before}
    return {key[0] for key in new.keys() | old.keys() if new.get(key) != old.get(key)}


def _is_on_the_claims_node(call: Call, claim: Obj) -> bool:
    user = call.request.user
    names = list(user.extra.get(NODE_NAME_EXTRA) or ())
    if not user.name.startswith("system:serviceaccount:") or len(names) != 1:
        return False
    selector = (allocation_of(claim) or {}).get("nodeSelector") or {}
    terms: list[Obj] = selector.get("nodeSelectorTerms") or []
    if len(terms) != 1 or terms[0].get("matchExpressions"):
        return False
    fields: list[Obj] = terms[0].get("matchFields") or []
    return len(fields) == 1 and fields[0] == {"key": "metadata.name", "operator": "In", "values": names}


async def _check(
    authorizer: Authorizer, call: Call, field: str, what: str, rights: Sequence[Attributes]
) -> list[FieldError]:
    """Nothing if the caller holds one of the rights."""
    user = call.request.user
    refusals = []
    for asked in rights:
        await authorizer.prepare(user, asked)
        decision = authorizer.decide(user, asked)
        if decision:
            return []
        refusals.append(refusal(user, asked, decision))
    verbs, resource = ", ".join(asked.verb for asked in rights), f"{_CLAIMS}/{rights[0].subresource}"
    why = f'changing {what} requires resource="{resource}", verb="{verbs}" permission: {refusals[0].message}'
    return [forbidden(field, why)]
