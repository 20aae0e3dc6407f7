"""Pods that work has to be near: which they are, and that there are none.

Source: kube-scheduler's InterPodAffinity: a pod that matches its own terms may be the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from haru.engine import Reason, Snapshot
from haru.engine.state import PodInfo
from haru.explain import hypothesis
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.kube.meta import Obj
from haru.kube.selectors import label_selector_text

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def affinity_targets(snapshot: Snapshot, work: WorkloadUnit) -> set[str]:
    """Return the pods on nodes, by path, that required affinity of the work's pods asks to be near."""
    terms = {term for pod in work.pending(snapshot) for term in pod.terms.near}
    spaces = snapshot.objects("Namespace")
    placed = (pod for pod in snapshot.pods.values() if pod.node and not pod.terminal) if terms else ()
    return {p.key.path for p in placed if any(t.matches(p.key.namespace, p.labels, spaces) for t in terms)}


def missing_targets(snapshot: Snapshot, work: WorkloadUnit) -> tuple[Reason, ...]:
    """Return what pods ask to be near and is on no node, nor among themselves.

    Of topology keys that no node has another reason tells.
    """
    pending, spaces = work.pending(snapshot), snapshot.objects("Namespace")
    pairs = [pair for pod in pending for pair in zip(pod.terms.near, near_terms(pod.spec), strict=True)]
    known = {key for name in snapshot.node_names for key in snapshot.nodes[name].labels} if pairs else ()
    unmet = {term: written for term, written in pairs if term.key in known}
    there = (pod for pod in snapshot.pods.values() if pod.node and not pod.terminal)
    for other in chain(pending, there) if unmet else ():
        for term in [one for one in unmet if one.matches(other.key.namespace, other.labels, spaces)]:
            del unmet[term]
    return tuple(
        Reason(
            "AffinityPodMissing",
            f"no pod on a node has {term_text(written)}, which pod affinity asks for",
            {"labels": term_text(written), "topologyKey": term.key},
        )
        for term, written in unmet.items()
    )


def near_terms(spec: Mapping[str, Any]) -> Sequence[Obj]:
    """Return the required terms of a pod's affinity to pods."""
    return ((spec.get("affinity") or {}).get("podAffinity") or {}).get(_REQUIRED) or ()


def term_text(term: Obj) -> str:
    """Return the labels that a term selects, as kubectl takes them."""
    return label_selector_text(term.get("labelSelector") or {}) or "any labels"


def without_terms(spec: Obj, texts: Sequence[str]) -> Obj:
    """Return the spec without the required terms that select these labels."""
    kept = [term for term in near_terms(spec) if term_text(term) not in texts]
    if len(kept) == len(near_terms(spec)):
        return spec
    near = {**spec["affinity"]["podAffinity"], _REQUIRED: kept}
    return {**spec, "affinity": {**spec["affinity"], "podAffinity": near if kept else {}}}


def without_missing_targets(snapshot: Snapshot, work: WorkloadUnit, missing: Sequence[Reason]) -> Snapshot:
    """Return the cluster as if the work's pods did not have to be near what is missing."""
    texts = [str(reason.data["labels"]) for reason in missing]
    pods = [{**pod.obj, "spec": without_terms(dict(pod.spec), texts)} for pod in work.pending(snapshot)]
    return hypothesis.with_pods(snapshot, map(PodInfo.of, pods))
