"""The work's claims with something changed in their requests, and what has to be done for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from haru.engine import Snapshot
from haru.engine.plugins import resolve_claims
from haru.explain.changes import delete, replacement
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.kube.meta import Obj, controller_of


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

    Then the template is replaced first, so that the controller makes claims as they are to be.
    """
    templates: dict[str, tuple[Obj, ...]] = {}
    claims: list[Obj] = []
    for path, claim in sorted(changed.items()):
        template = _template_of(snapshot, claim)
        if template is None:
            claims += replacement(claim, claim["spec"], owned=True)
            continue
        spec = {**template["spec"], "spec": claim["spec"]}
        templates.setdefault(template["metadata"]["name"], replacement(template, spec))
        claims.append(delete(claim["apiVersion"], claim["kind"], *reversed(path.split("/", 1))))
    return (*(step for steps in templates.values() for step in steps), *claims)


def _template_of(snapshot: Snapshot, claim: Obj) -> Obj | None:
    """The template that a pod's claim was made from, if it exists."""
    owner = controller_of(claim)
    namespace = claim["metadata"].get("namespace") or "default"
    pod = snapshot.pods.get(f"{namespace}/{owner['name']}") if owner is not None and owner["kind"] == "Pod" else None
    if pod is None:
        return None
    made = pod.status.get("resourceClaimStatuses") or ()
    entry = next((s.get("name") for s in made if s.get("resourceClaimName") == claim["metadata"]["name"]), None)
    name = next((use.template_name for use in pod.claims if use.name == entry), "")
    found = snapshot.objects("ResourceClaimTemplate").get(f"{namespace}/{name}")
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", **found} if found else None
