"""The work's claims with something changed in their requests, and what has to be done for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from haru.engine import Snapshot
from haru.engine.plugins import resolve_claims
from haru.engine.state import PodInfo
from haru.explain.changes import delete, replacement
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.kube.meta import Obj, allocation_of, controller_of


def changed_claims(snapshot: Snapshot, work: WorkloadUnit, change: Callable[[Obj], Obj]) -> dict[str, Obj]:
    """The work's claims that are to be allocated, with every request changed."""
    return changed_specs(snapshot, work, lambda spec: _with_requests(spec, change))


def changed_specs(snapshot: Snapshot, work: WorkloadUnit, change: Callable[[Obj], Obj]) -> dict[str, Obj]:
    """The work's claims that are to be allocated and whose spec is another one after the change."""
    found: dict[str, Obj] = {}
    for pod in work.pending(snapshot):
        uses = resolve_claims(snapshot, pod, work.pod_group(snapshot), workload_claims=True)
        for use in uses if isinstance(uses, tuple) else ():
            if use.allocation is None:
                found[use.path] = {**use.claim, "spec": change(use.claim.get("spec") or {})}
    return {path: claim for path, claim in found.items() if claim != snapshot.claims[path]}


def _with_requests(spec: Obj, change: Callable[[Obj], Obj]) -> Obj:
    devices = spec.get("devices") or {}
    requests = []
    for request in devices.get("requests") or ():
        changed = dict(request)
        if request.get("exactly") is not None:
            changed["exactly"] = change(request["exactly"])
        if request.get("firstAvailable"):
            changed["firstAvailable"] = [change(alternative) for alternative in request["firstAvailable"]]
        requests.append(changed)
    return {**spec, "devices": {**devices, "requests": requests}}


def claim_changes(snapshot: Snapshot, changed: Mapping[str, Obj]) -> tuple[Obj, ...]:
    """A claim's spec never changes: the claim is deleted and made anew, from its template if it has one.

    Then the template is replaced first, so that the controller makes claims as they are to be; for other waiting pods
    of the same maker, too, whose claims are as that one was.
    """
    templates: dict[str, tuple[Obj, ...]] = {}
    replaced: list[Obj] = []
    made_anew: list[str] = []
    for path, claim in sorted(changed.items()):
        template = _template_of(snapshot, claim)
        if template is None:
            replaced += replacement(claim, claim["spec"], owned=True)
            continue
        spec = {**template["spec"], "spec": claim["spec"]}
        if spec != template["spec"]:  # else somebody has mended it since
            templates.setdefault(template["metadata"]["name"], replacement(template, spec))
        made_anew.append(path)
    made_anew += _siblings(snapshot, made_anew)
    gone = (delete("resource.k8s.io/v1", "ResourceClaim", *reversed(path.split("/", 1))) for path in made_anew)
    return (*(step for steps in templates.values() for step in steps), *replaced, *gone)


def _siblings(snapshot: Snapshot, paths: Sequence[str]) -> list[str]:
    """The claims yet to be allocated that were made for waiting pods of the same makers as claims like these were."""
    specs: dict[tuple[str, str], Obj] = {}
    for claim in (snapshot.claims[path] for path in paths):
        user = _user(snapshot, claim)
        if user is not None and user[0].controller is not None:
            specs[user[0].controller["uid"], user[1]] = claim.get("spec") or {}
    makers = {uid for uid, _ in specs}
    found: set[str] = set()
    for pod in snapshot.pods.values() if makers else ():
        uid = (pod.controller or {}).get("uid")
        if uid not in makers or pod.node or pod.terminal or pod.deleting:
            continue
        for made in pod.status.get("resourceClaimStatuses") or ():
            path = f"{pod.key.namespace}/{made.get('resourceClaimName')}"
            spec, claim = specs.get((uid, made.get("name"))), snapshot.claims.get(path) or {}
            if spec is not None and claim.get("spec") == spec and not allocation_of(claim):
                found.add(path)
    return sorted(found.difference(paths))


def _template_of(snapshot: Snapshot, claim: Obj) -> Obj | None:
    """The template that a pod's claim was made from, if it exists."""
    found = _user(snapshot, claim)
    if found is None:
        return None
    pod, entry = found
    name = next((use.template_name for use in pod.claims if use.name == entry), "")
    template = snapshot.objects("ResourceClaimTemplate").get(f"{pod.key.namespace}/{name}")
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", **template} if template else None


def _user(snapshot: Snapshot, claim: Obj) -> tuple[PodInfo, str] | None:
    """The pod that a claim was made for, and by which entry of its spec."""
    owner, namespace = controller_of(claim), claim["metadata"].get("namespace") or "default"
    pod = snapshot.pods.get(f"{namespace}/{owner['name']}") if owner is not None and owner["kind"] == "Pod" else None
    if pod is None:
        return None
    made = pod.status.get("resourceClaimStatuses") or ()
    own = (str(e.get("name")) for e in made if e.get("resourceClaimName") == claim["metadata"]["name"])
    return next(((pod, entry) for entry in own), None)
