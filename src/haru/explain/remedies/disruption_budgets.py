"""An eviction that a PodDisruptionBudget does not allow: one more pod of its workload, or a smaller budget.

Source: the Eviction API and the disruption controller, `disruptionsAllowed = currentHealthy - desiredHealthy`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from haru.engine import Options, Reason, Snapshot
from haru.engine.state import PodInfo
from haru.explain import hypothesis
from haru.explain.changes import patch
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.explain.explanation import Remedy
from haru.kube.meta import Obj, controller_of
from haru.kube.names import counted


def budget_remedies(snapshot: Snapshot, pod: PodInfo, reason: Reason, options: Options) -> Iterator[Remedy]:
    """More healthy pods than the budget asks for, or a budget that asks for fewer."""
    name = str(reason.data["podDisruptionBudget"])
    healthy, desired = int(str(reason.data["currentHealthy"])), int(str(reason.data["desiredHealthy"]))
    budget = snapshot.objects("PodDisruptionBudget").get(f"{pod.key.namespace}/{name}")
    if budget is None:
        return
    expected = int(str(reason.data["expectedPods"]))
    if _desired(budget, desired, expected + 1) <= healthy:
        yield from _one_more(snapshot, pod, name, options)
    yield from _smaller(budget, name, healthy, expected, pod)


def _desired(budget: Obj, now: int, expected: int) -> int:
    """How many healthy pods the budget would ask for of so many; of a number that is not understood as many as now."""
    spec = budget.get("spec") or {}
    field = "maxUnavailable" if spec.get("maxUnavailable") is not None else "minAvailable"
    text = str(spec.get(field))
    if not text.removesuffix("%").isdigit():
        return now
    number = int(text.removesuffix("%"))
    number = math.ceil(number * expected / 100) if text.endswith("%") else number
    return expected - number if field == "maxUnavailable" else number


def _one_more(snapshot: Snapshot, pod: PodInfo, budget: str, options: Options) -> Iterator[Remedy]:
    """One more replica: once it is ready, one pod may be evicted."""
    owner = pod.controller or {}
    found = snapshot.objects(str(owner.get("kind"))).get(f"{pod.key.namespace}/{owner.get('name')}")
    if found is None or owner.get("kind") not in ("ReplicaSet", "StatefulSet"):
        return
    above = controller_of(found)
    kind, name = ("Deployment", above["name"]) if above is not None else (owner["kind"], owner["name"])
    replicas = int((found.get("spec") or {}).get("replicas") or 0) + 1
    change = patch("apps/v1", kind, name, {"spec": {"replicas": replicas}}, pod.key.namespace)
    after, copies = hypothesis.made_anew(snapshot, [pod])
    fits = WorkloadUnit((copies[0].key.path,)).fits(after, options)
    text = f"scale {kind.lower()}/{name} to {replicas}: once the new pod is ready, {budget} allows 1 disruption"
    costs = "1 more pod" + ("" if fits else ", for which no place was found")
    yield Remedy("ScaleUp", text, (change,), 3, fits, costs)


def _smaller(budget: Obj, name: str, healthy: int, expected: int, pod: PodInfo) -> Iterator[Remedy]:
    """Numbers with which the budget allows one disruption now; a percentage becomes a number."""
    spec = budget.get("spec") or {}
    if healthy < 1:
        return
    if spec.get("maxUnavailable") is not None:
        field, value = "maxUnavailable", expected - healthy + 1
    else:
        field, value = "minAvailable", healthy - 1
    change = patch("policy/v1", "PodDisruptionBudget", name, {"spec": {field: value}}, pod.key.namespace)
    text = f"let PodDisruptionBudget {name} allow 1 disruption: {field} {value} in place of {spec.get(field)}"
    costs = f"{counted(healthy - 1, 'healthy pod')} of {expected} left while the evicted pod is away"
    yield Remedy("RelaxDisruptionBudget", text, (change,), 5, True, costs)
