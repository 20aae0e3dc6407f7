"""Inter-pod terms of one pod, read once per version of it: which pods a term matches, and by which label nodes.

Source: kube-scheduler's AffinityTerm and WeightedAffinityTerm, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from haru.kube.selectors import LabelSelector, label_selector_from

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_NO_LABELS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """One term: the pods of some namespaces with some labels, in the domains of a topology label.

    `spaces` selects namespaces by their labels; None selects none. Namespaces that nobody knows have no labels.
    """

    key: str
    selector: LabelSelector
    namespaces: frozenset[str]
    spaces: LabelSelector | None
    weight: int = 1

    @staticmethod
    def of(namespace: str, term: Mapping[str, Any], weight: int = 1) -> AffinityTerm:
        """Read a PodAffinityTerm of a pod in a namespace."""
        named = frozenset(term.get("namespaces") or ())
        spaces = term.get("namespaceSelector")
        if not named and spaces is None:
            named = frozenset((namespace,))
        return AffinityTerm(
            key=term.get("topologyKey") or "",
            selector=label_selector_from(term.get("labelSelector")),
            namespaces=named,
            spaces=label_selector_from(spaces) if spaces is not None else None,
            weight=weight,
        )

    def matches(self, namespace: str, labels: Mapping[str, str], known: Mapping[str, Mapping[str, Any]]) -> bool:
        """Return whether the term matches a pod; `known` are the Namespace objects by name."""
        if not self.selector.matches(labels):
            return False
        if namespace in self.namespaces:
            return True
        if self.spaces is None:
            return False
        return self.spaces.empty or self.spaces.matches(_labels(known.get(namespace)))

    @property
    def label_keys(self) -> Iterator[str]:
        """The labels of pods that the term looks at."""
        return (requirement.key for requirement in self.selector.requirements)


@dataclass(frozen=True, slots=True)
class PodAffinityTerms:
    """All inter-pod terms of a pod: what it must be near to or away from, and what it likes and dislikes."""

    near: tuple[AffinityTerm, ...] = ()
    away: tuple[AffinityTerm, ...] = ()
    likes: tuple[AffinityTerm, ...] = ()
    dislikes: tuple[AffinityTerm, ...] = ()

    @staticmethod
    def of(namespace: str, affinity: Mapping[str, Any]) -> PodAffinityTerms:
        """Read `spec.affinity` of a pod in a namespace."""
        near, away = affinity.get("podAffinity") or {}, affinity.get("podAntiAffinity") or {}
        return PodAffinityTerms(
            tuple(AffinityTerm.of(namespace, term) for term in near.get(_REQUIRED) or ()),
            tuple(AffinityTerm.of(namespace, term) for term in away.get(_REQUIRED) or ()),
            tuple(_weighted(namespace, near.get(_PREFERRED) or ())),
            tuple(_weighted(namespace, away.get(_PREFERRED) or ())),
        )

    def __bool__(self) -> bool:
        return bool(self.near or self.away or self.likes or self.dislikes)

    def __iter__(self) -> Iterator[AffinityTerm]:
        yield from self.near
        yield from self.away
        yield from self.likes
        yield from self.dislikes

    @property
    def by_namespace_labels(self) -> bool:
        """Return whether a term selects namespaces by labels."""
        return any(term.spaces is not None and not term.spaces.empty for term in self)


NO_TERMS = PodAffinityTerms()


def _weighted(namespace: str, terms: Iterable[Mapping[str, Any]]) -> Iterator[AffinityTerm]:
    for term in terms:
        yield AffinityTerm.of(namespace, term.get("podAffinityTerm") or {}, int(term.get("weight") or 0))


def _labels(namespace: Mapping[str, Any] | None) -> Mapping[str, str]:
    if namespace is None:
        return _NO_LABELS
    found: Mapping[str, str] = namespace["metadata"].get("labels") or _NO_LABELS
    return found
