"""The work's claims with something changed in their requests, and what has to be done for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from haru.engine.cluster import Snapshot
from haru.engine.decision import Obj
from haru.engine.groups.claims import resolve_claims
from haru.explain.changes import replacement
from haru.explain.work import Work


def changed_claims(snapshot: Snapshot, work: Work, change: Callable[[Obj], Obj]) -> dict[str, Obj]:
    """The work's claims that are to be allocated, with every request changed."""
    found: dict[str, Obj] = {}
    for pod in work.pending(snapshot):
        uses = resolve_claims(snapshot, pod, work.pod_group(snapshot), workload_claims=True)
        for use in uses if isinstance(uses, tuple) else ():
            if use.allocation is None:
                found[use.path] = _with_requests(use.claim, change)
    return {path: claim for path, claim in found.items() if claim != snapshot.claims[path]}


def _with_requests(claim: Obj, change: Callable[[Obj], Obj]) -> Obj:
    devices = (claim.get("spec") or {}).get("devices") or {}
    requests = []
    for request in devices.get("requests") or ():
        changed = dict(request)
        if request.get("exactly") is not None:
            changed["exactly"] = change(request["exactly"])
        if request.get("firstAvailable"):
            changed["firstAvailable"] = [change(alternative) for alternative in request["firstAvailable"]]
        requests.append(changed)
    return {**claim, "spec": {**claim["spec"], "devices": {**devices, "requests": requests}}}


def claim_changes(changed: Mapping[str, Obj]) -> tuple[Obj, ...]:
    """A claim's spec never changes: the claim is deleted and made anew."""
    return tuple(step for _, claim in sorted(changed.items()) for step in replacement(claim, claim["spec"]))
