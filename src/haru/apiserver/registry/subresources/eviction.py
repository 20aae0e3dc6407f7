"""Eviction: a deletion that asks the pod's disruption budget first (policy/v1)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from haru.apiserver.admission import node_restriction
from haru.apiserver.registry.delete import check_preconditions, checked_options, delete_one
from haru.apiserver.registry.object_metadata import place_in_namespace
from haru.apiserver.registry.write import change
from haru.apiserver.request import bodies
from haru.apiserver.request.call import Call, read_write_options
from haru.apiserver.request.http import Response, json_response, success_status
from haru.kube.errors import (
    StatusError,
    bad_request_error,
    forbidden_error,
    invalid,
    invalid_error,
    too_many_requests_error,
)
from haru.kube.kinds import by_kind
from haru.kube.meta import Obj, get_condition, set_condition
from haru.kube.selectors import label_selector_from

_KIND = by_kind("policy/v1", "Eviction")
RETRY_SECONDS = 10
MAX_DISRUPTED = 2000
"""More pods than this may not be on their way out unconfirmed."""
_USED_UP = {"type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": ""}
_EVICTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}


async def evict(call: Call) -> Response:
    """POST of an Eviction: 201, or 429 while the budget allows no disruption."""
    assert _KIND is not None
    read_write_options(call)
    eviction = await bodies.read_object(call.request, _KIND, also=("policy/v1beta1",))
    metadata = eviction.setdefault("metadata", {})
    place_in_namespace(call, metadata)
    if metadata.get("name") != call.name:
        raise bad_request_error("name in URL does not match name in Eviction object")
    asked = eviction.get("deleteOptions") or {}
    if asked.get("ignoreStoreReadErrorWithClusterBreakingPotential"):
        member = "deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential"
        why = "can not be set for pod eviction, try after removing the option"
        raise invalid_error("policy", "Eviction", call.name, [invalid(member, True, why)])
    options = checked_options(asked)
    call.dry_run = call.dry_run or bool(asked.get("dryRun"))
    await call.admission.admit_posted(call, call.name)
    await node_restriction.check_eviction(call)
    if call.chain is not None:
        await call.chain.about_subresource(call, eviction)
        call.chain = None  # what follows is the eviction's own doing
    pod = await call.objects.read("", "pods", call.namespace, call.name)
    if pod is None:
        raise call.not_found()
    if not _needs_no_budget(pod):
        budget = await _budget_of(call, pod)
        if budget is not None and not _is_free_to_go(budget, pod):
            await _spend(call, budget, pod)
    check_preconditions(call, options, pod)
    uid = options.uid or pod["metadata"]["uid"]
    version = await _mark(call, uid, options.resource_version)
    await delete_one(call, replace(options, uid=uid, resource_version=version))
    return json_response(success_status({}) | {"code": 201}, 201)


async def _mark(call: Call, uid: str, version: str) -> str:
    """Write on the pod why it goes (KEP-3329); the version that its deletion is to find, if the caller named one."""
    if call.dry_run:
        return version

    async def make(live: Obj) -> Obj:
        status = dict(live.get("status") or {})
        status["conditions"] = set_condition(status.get("conditions"), {**_EVICTED, "lastProbeTime": None}, call.now)
        metadata = {**live["metadata"], "uid": uid}
        return {**live, "metadata": {**metadata, "resourceVersion": version} if version else metadata, "status": status}

    outcome = await change(
        replace(call, subresource="status"), make, prepare=_as_it_is, applied=True, retry=not version
    )
    marked = outcome.record.revision if outcome.record is not None else version
    return str(marked) if version else ""


def _needs_no_budget(pod: Obj) -> bool:
    """Pods that are over, not started or already going are no disruption."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or bool(pod["metadata"].get("deletionTimestamp"))


async def _budget_of(call: Call, pod: Obj) -> Obj | None:
    labels = pod["metadata"].get("labels") or {}
    budgets = [
        budget
        for budget in await call.objects.peek_all("policy", "poddisruptionbudgets", call.namespace)
        if (selector := (budget.get("spec") or {}).get("selector")) is not None
        and label_selector_from(selector).matches(labels)
    ]
    if len(budgets) > 1:
        why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise StatusError(500, "", why)
    return budgets[0] if budgets else None


def _is_free_to_go(budget: Obj, pod: Obj) -> bool:
    """An unhealthy pod may go without a place in the budget, as the budget's policy says."""
    ready = get_condition(pod, "Ready")
    if ready is not None and ready.get("status") == "True":
        return False
    status = budget.get("status") or {}
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    return int(status.get("currentHealthy") or 0) >= int(status.get("desiredHealthy") or 0) > 0


def _refusal(budget: Obj, why: str, retry_seconds: int = 0) -> StatusError:
    """429; only an answer that says when to come back is repeated by clients of themselves."""
    error = too_many_requests_error("Cannot evict pod as it would violate the pod's disruption budget.", retry_seconds)
    message = f"The disruption budget {budget['metadata']['name']} {why}"
    error.details["causes"] = [{"reason": "DisruptionBudget", "message": message}]
    return error


def _used_up(status: Obj) -> str:
    """Why the budget allows no disruption now."""
    condition = get_condition({"status": status}, "DisruptionAllowed") or {}
    message = condition.get("message") if condition.get("status") == "False" else ""
    desired, healthy = int(status.get("desiredHealthy") or 0), int(status.get("currentHealthy") or 0)
    no = "does not allow evicting pods currently"
    if message and condition.get("reason") == "SyncFailed":  # then the counts are not to be trusted
        return f"{no} because it failed sync: {message}"
    if healthy <= desired:
        return f"needs {desired} healthy pods and has {healthy} currently"
    return f"{no} ({condition.get('reason')}): {message}" if message else no


async def _spend(call: Call, budget: Obj, pod: Obj) -> None:
    """Take one disruption from the budget; 429 when it has none."""
    resource = call.objects.served.preferred("policy", "poddisruptionbudgets")
    name = budget["metadata"]["name"]
    on_budget = replace(call, resource=resource, name=name, subresource="status", manager="kube-apiserver")

    async def make(live: Obj) -> Obj:
        return spent(live, pod["metadata"]["name"], call.now)

    await change(on_budget, make, prepare=_as_it_is)


async def _as_it_is(call: Call, wanted: Obj, live: Obj) -> Obj:
    return wanted


def spent(budget: Obj, pod_name: str, now: str) -> Obj:
    """The budget with one disruption less, and the pod that has it written down."""
    status: dict[str, Any] = dict(budget.get("status") or {})
    if int(status.get("observedGeneration") or 0) < int(budget["metadata"].get("generation") or 0):
        raise _refusal(budget, "is still being processed by the server.", RETRY_SECONDS)
    allowed, disrupted = int(status.get("disruptionsAllowed") or 0), status.get("disruptedPods") or {}
    name = budget["metadata"]["name"]
    if allowed < 0:
        raise forbidden_error("policy", "poddisruptionbudget", name, "pdb disruptions allowed is negative")
    if len(disrupted) > MAX_DISRUPTED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise forbidden_error("policy", "poddisruptionbudget", name, why)
    if not allowed:
        raise _refusal(budget, _used_up(status))
    status["disruptionsAllowed"] = allowed - 1
    if allowed == 1:
        used_up = {**_USED_UP, "observedGeneration": int(status.get("observedGeneration") or 0)}
        status["conditions"] = set_condition(status.get("conditions"), used_up, now)
    status["disruptedPods"] = {**disrupted, pod_name: now}
    return {**budget, "status": status}
