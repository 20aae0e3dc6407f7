"""Work that has its devices and waits until their driver says that they are ready (binding conditions, KEP-5007)."""

from __future__ import annotations

from collections.abc import Iterable

from haru.engine import Reason, Snapshot
from haru.engine.plugins import resolve_claims
from haru.engine.state import PodInfo, namespaced_name, pinned_node
from haru.explain.hypothesis import consumers
from haru.kube.binding_conditions import conditions_told
from haru.kube.meta import Obj, allocation_of


def devices_not_ready(snapshot: Snapshot, pods: Iterable[PodInfo]) -> Reason | None:
    """Why pods are not bound that have their places; None unless their devices are not ready."""
    found: list[Obj] = []
    for pod in pods:
        group = snapshot.pod_group(pod.group) if pod.group is not None else None
        uses = resolve_claims(snapshot, pod, group, workload_claims=True)
        for use in () if isinstance(uses, Reason) else uses:
            if any(user is pod for user in consumers(snapshot, use.claim)):
                found += [one for one in _not_ready(use.claim) if one not in found]
    if not found:
        return None
    first, more = found[0], len(found) - 1
    names = " and ".join(first["missing"])
    text = (
        f"its devices are allocated; it is bound once driver {first['driver']} has said that {names} "
        f"{'is' if len(first['missing']) == 1 else 'are'} true of device {first['pool']}/{first['device']}"
    )
    return Reason("DevicesNotReady", text + (f" and of {more} more" if more else ""), {"devices": found})


def _not_ready(claim: Obj) -> list[Obj]:
    """The devices of a claim that have yet to be ready, each with the conditions that are not true."""
    node = pinned_node(claim["status"]["allocation"]) if allocation_of(claim) else None
    found = []
    for result, told in conditions_told(claim):
        if missing := [name for name in result["bindingConditions"] if name not in told]:
            device = {name: result[name] for name in ("driver", "pool", "device")}
            found.append({"claim": namespaced_name(claim), "node": node or "", **device, "missing": missing})
    return found
