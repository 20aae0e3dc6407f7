"""Classes of equal topology domains: each bound is computed once for all of a class.

Domains of one node each are equal if their nodes offer and use the same and have as many devices, free and in all, of
each sort that the group requests. A domain of several nodes is alone in its class. The decision cache keeps the
classes; they follow at the cost of the domains that change, so that a gang that must be on one host does not look at
every host.
Source: our own; KEP-5732 tries every domain.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence

from haru.engine.podgroup.domain_totals import DeviceTotals, DomainTotals
from haru.engine.state.cache import Snapshot

_LIMIT = 8


class DomainClasses:
    """Hold the domains of one label by class, for groups that request some sorts of devices."""

    def __init__(self, domain_totals: DomainTotals, counts: Sequence[DeviceTotals]) -> None:
        self._domain_totals = domain_totals
        self._counts = counts
        self._logs = (domain_totals.changes, *[count.changes for count in self._counts])
        self._positions = [-1] * len(self._logs)
        self._key_of: dict[str, Hashable] = {}
        self._classes: dict[Hashable, dict[str, None]] = {}

    @staticmethod
    def of(snapshot: Snapshot, domain_totals: DomainTotals, counts: Sequence[DeviceTotals]) -> DomainClasses:
        """Return the classes in the state of the totals and counts."""
        found = snapshot.decision_cache.get_or_compute(
            "domain classes", (domain_totals, *counts), lambda: DomainClasses(domain_totals, counts), limit=_LIMIT
        )
        found._catch_up()
        return found

    def __iter__(self) -> Iterator[Collection[str]]:
        """Iterate over the classes, each as its domains."""
        return iter(self._classes.values())

    def _catch_up(self) -> None:
        changed: set[str] = set()
        for number, (log, position) in enumerate(zip(self._logs, self._positions, strict=True)):
            names = log.since(position)
            self._positions[number] = log.position
            if names is None:
                changed.update(self._domain_totals.domains, self._key_of)
            else:
                changed |= names
        for domain in changed:
            self._put(domain)

    def _put(self, domain: str) -> None:
        """Move a domain into the class in which it is now, if it is there."""
        before, now = self._key_of.pop(domain, None), self._key(domain)
        if before != now and before is not None:
            equal = self._classes[before]
            del equal[domain]
            if not equal:
                del self._classes[before]
        if now is not None:
            self._key_of[domain] = now
            self._classes.setdefault(now, {})[domain] = None

    def _key(self, domain: str) -> Hashable | None:
        """Return what is equal for the domains of a class; None without such a domain."""
        totals = self._domain_totals.domains.get(domain)
        if totals is None:
            return None
        if len(totals.nodes) > 1:
            return domain
        (name,) = totals.nodes
        node = self._domain_totals.node(name)
        return node.spec.kind, node.load, *[count.node_local_count(domain) for count in self._counts]
