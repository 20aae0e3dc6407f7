"""Defaults of scheduling.k8s.io: priority classes and pod groups (KEP 4671, 5710)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from haru.kube.defaulting.filling import fill_unset, section

if TYPE_CHECKING:
    from haru.kube.gates import FeatureGates

Obj = dict[str, Any]


def _priority_class(priority_class: Obj, gates: FeatureGates) -> None:
    fill_unset(priority_class, preemptionPolicy="PreemptLowerPriority", value=0)


def _pod_group(pod_group: Obj, gates: FeatureGates) -> None:
    if gates.enabled("WorkloadAwarePreemption"):
        fill_unset(section(pod_group, "spec"), disruptionMode="Pod")


FILLERS: Mapping[tuple[str, str], Callable[[Obj, FeatureGates], None]] = {
    ("scheduling.k8s.io", "PriorityClass"): _priority_class,
    ("scheduling.k8s.io", "PodGroup"): _pod_group,
}
