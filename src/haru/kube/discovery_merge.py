"""One discovery document out of those of several servers, for clients that speak to any of them.

Servers of different versions serve different resources. What any of them serves is in the union: groups, their
versions, their resources. The servers are taken in the order of their ids, so all of them come to the same union,
whatever order they learned of each other in.
Source: peer-aggregated discovery (KEP 4020) of Kubernetes 1.36, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Any

from haru.kube.meta import Obj

Groups = list[Obj]
"""The items of an APIGroupDiscoveryList."""


def merged(documents: Mapping[str, Groups], own: str) -> Groups:
    """The union of the documents by server id; the own one itself when the others add nothing to it."""
    lists = [documents[server] for server in sorted(documents)]
    result = _merge(lists, _group_name, _merge_groups)
    return documents[own] if result == documents[own] else result


def served_resources(groups: Iterable[Obj]) -> set[tuple[str, str, str]]:
    """(group, version, plural name) of every top-level resource of a document."""
    return {
        (_group_name(group), version["version"], resource["resource"])
        for group in groups
        for version in group.get("versions") or ()
        for resource in version.get("resources") or ()
    }


def without_versions(groups: Groups, excluded: set[tuple[str, str]]) -> Groups:
    """The document less some (group, version); a group of which nothing is left is left out."""
    result = []
    for group in groups:
        name = _group_name(group)
        versions = group.get("versions") or []
        kept = [version for version in versions if (name, version["version"]) not in excluded]
        if kept:
            result.append(group if len(kept) == len(versions) else {**group, "versions": kept})
    return result


def merged_order(lists: Iterable[Sequence[str]]) -> list[str]:
    """All names, each list's own order kept; where the lists contradict each other the earlier one counts.

    A topological sort: of the names that nothing has to come before, the one that was seen first is next.
    """
    position: dict[str, int] = {}
    after: dict[str, set[str]] = {}
    waits: dict[str, int] = {}
    for names in lists:
        for name in names:
            position.setdefault(name, len(position))
            waits.setdefault(name, 0)
        for before, name in pairwise(names):
            if name not in after.setdefault(before, set()):
                after[before].add(name)
                waits[name] += 1
    left = dict(position)
    ready = [(position[name], name) for name, count in waits.items() if not count]
    heapify(ready)
    order: list[str] = []
    while left:
        # Without a name that is ready the lists contradict each other: the one that was seen first is taken.
        name = heappop(ready)[1] if ready else min(left, key=lambda each: left[each])
        if name not in left:
            continue
        del left[name]
        order.append(name)
        for follower in after.get(name, ()):
            waits[follower] -= 1
            if not waits[follower] and follower in left:
                heappush(ready, (position[follower], follower))
    return order


def _group_name(group: Obj) -> str:
    return str((group.get("metadata") or {}).get("name", ""))


def _version_name(version: Obj) -> str:
    return str(version["version"])


def _resource_name(resource: Obj) -> str:
    return str(resource["resource"])


def _merge(lists: Sequence[Groups], name_of: Any, merge_equals: Any) -> Groups:
    """Items of equal names become one; all in an order that suits every list."""
    named: dict[str, list[Obj]] = {}
    for items in lists:
        for item in items:
            named.setdefault(name_of(item), []).append(item)
    order = merged_order([[name_of(item) for item in items] for items in lists])
    return [merge_equals(named[name]) for name in order]


def _merge_groups(groups: list[Obj]) -> Obj:
    versions = _merge([group.get("versions") or [] for group in groups], _version_name, _merge_versions)
    return groups[0] if versions == groups[0].get("versions") else {**groups[0], "versions": versions}


def _merge_versions(versions: list[Obj]) -> Obj:
    """`freshness` and whatever else a version says of itself is the first server's."""
    resources = _merge([version.get("resources") or [] for version in versions], _resource_name, _merge_resources)
    first = versions[0]
    return first if resources == (first.get("resources") or []) else {**first, "resources": resources}


def _merge_resources(resources: list[Obj]) -> Obj:
    """What describes the resource is the first server's; what can be done with it is everybody's."""
    first, *others = resources
    if all(other == first for other in others):
        return first
    result = {**first, "verbs": sorted({verb for each in resources for verb in each.get("verbs") or ()})}
    subresources = {sub["subresource"]: sub for each in resources for sub in each.get("subresources") or ()}
    if subresources:
        result["subresources"] = [subresources[name] for name in sorted(subresources)]
    return result
