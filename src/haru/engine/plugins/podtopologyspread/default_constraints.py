"""Spread constraints for pods that have none: what the profile says, over the pods of the same service and owner.

Source: kube-scheduler's PodTopologySpread defaulting (KEP-1258) and its default selector, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from haru.engine.framework.profile import Profile
from haru.engine.plugins.podtopologyspread.filter import Constraint, own_constraints
from haru.engine.state.cache import Snapshot
from haru.engine.state.decision import Obj
from haru.engine.state.pod_info import PodInfo
from haru.kube.meta import controller_of
from haru.kube.selectors import LabelSelector, Requirement, label_selector_from

_OWNERS = {
    ("v1", "ReplicationController"): "ReplicationController",
    ("apps/v1", "ReplicaSet"): "ReplicaSet",
    ("apps/v1", "StatefulSet"): "StatefulSet",
}


class DefaultConstraintSelectors:
    """The services of a snapshot by namespace, listed anew only when one of them has changed."""

    def __init__(self) -> None:
        self._source: Mapping[str, Obj] | None = None
        self._by_namespace: dict[str, list[Mapping[str, str]]] = {}

    def selectors(self, snapshot: Snapshot, pod: PodInfo) -> Iterator[Mapping[str, str]]:
        """The selectors of the services that a pod belongs to."""
        source = snapshot.objects("Service")
        if source is not self._source:
            self._source = source
            self._by_namespace = {}
            for path, service in sorted(source.items()):
                selector = (service.get("spec") or {}).get("selector")
                if selector is not None:
                    self._by_namespace.setdefault(path.split("/", 1)[0], []).append(selector)
        for selector in self._by_namespace.get(pod.key.namespace, ()):
            if all(pod.labels.get(key) == value for key, value in selector.items()):
                yield selector


def default_constraints(
    snapshot: Snapshot, pod: PodInfo, profile: Profile, services: DefaultConstraintSelectors, when: str
) -> tuple[Constraint, ...]:
    """The hard or the soft constraints that hold for a pod: its own, or the defaults if it has none at all."""
    if pod.spec.get("topologySpreadConstraints"):
        return own_constraints(pod, when)
    listed = [c for c in profile.default_spread if c.get("whenUnsatisfiable") == when]
    if not listed:
        return ()
    selector = _selector(snapshot, pod, services)
    return () if selector.empty else tuple(Constraint.of(pod, c, selector) for c in listed)


def _selector(snapshot: Snapshot, pod: PodInfo, services: DefaultConstraintSelectors) -> LabelSelector:
    labels: dict[str, str] = {}
    for found in services.selectors(snapshot, pod):
        labels.update(found)
    more: tuple[Requirement, ...] = ()
    owner = controller_of(pod.obj) or {}
    kind = _OWNERS.get((str(owner.get("apiVersion")), str(owner.get("kind"))))
    if kind is not None:
        obj = snapshot.objects(kind).get(f"{pod.key.namespace}/{owner.get('name')}") or {}
        selector = (obj.get("spec") or {}).get("selector") or {}
        if kind == "ReplicationController":
            labels.update(selector)
        elif selector:
            more = label_selector_from(selector).requirements
    required = tuple(Requirement(key, "in", frozenset({value})) for key, value in sorted(labels.items()))
    return LabelSelector((*required, *more))
