"""A pod that asks for less cpu or memory: as much as a node has left, in its template or in the pod itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from haru.engine.state import NodeInfo, PodInfo, amount_of
from haru.explain import hypothesis
from haru.explain.diagnosis.diagnosis import Diagnosis
from haru.explain.explanation import Remedy
from haru.explain.remedies.node_openings import Openings
from haru.explain.remedies.pod_changes import Change, changed_pods, pod_changes, with_container
from haru.explain.render.wording import amount_text
from haru.kube.meta import Obj

_STEPS = {"cpu": (1000, 100), "memory": (1 << 30, 1 << 20)}
"""Amounts are multiples of the first where they are as much, else of the second: of cpu in thousandths, of bytes."""
_MOST_MEMBERS, _MOST_AMOUNTS, _MOST_PAIRS = 16, 32, 8


def smaller_amounts(openings: Openings, found: Diagnosis) -> Iterator[Remedy]:
    """The most cpu, or the most memory, per pod that would fit now; of both, if both are too much."""
    alone = False
    for resource in _STEPS:
        asked = max((pod.requests.get(resource, 0) for pod in openings.work.pending(openings.snapshot)), default=0)
        amounts = _amounts(openings, found, resource, asked)
        low, high = -1, len(amounts)
        while high - low > 1:
            middle = (low + high) // 2
            if _fits(openings, {resource: amounts[middle]}):
                low = middle
            else:
                high = middle
        if low >= 0:
            alone = True
            yield _remedy(openings, {resource: asked}, {resource: amounts[low]})
    if not alone:
        yield from _both(openings, found)


def _both(openings: Openings, found: Diagnosis) -> Iterator[Remedy]:
    """The most cpu and memory that one node has left of both, where neither alone is all that is too much."""
    snapshot, pending = openings.snapshot, openings.work.pending(openings.snapshot)
    asked = {resource: max((pod.requests.get(resource, 0) for pod in pending), default=0) for resource in _STEPS}
    lefts = {
        tuple(_rounded(resource, _left(snapshot.nodes[name], resource)) for resource in _STEPS)
        for name, failures in (found.answers or {}).items()
        if {failure.reason.data.get("resource") for failure in failures} == set(_STEPS)
    }
    for left in sorted(lefts, reverse=True)[:_MOST_PAIRS]:
        amounts = dict(zip(_STEPS, left, strict=True))
        if all(0 < amount < asked[resource] for resource, amount in amounts.items()) and _fits(openings, amounts):
            yield _remedy(openings, asked, amounts)
            return


def _amounts(openings: Openings, found: Diagnosis, resource: str, asked: int) -> list[int]:
    """What nodes that lack nothing but this have left of it for one pod or several, the least first.

    None of less than half of what is asked for, unless no node has as much at all.
    """
    snapshot, lefts = openings.snapshot, set[int]()
    largest = 0
    for name, failures in (found.answers or {}).items():
        node = snapshot.nodes[name]
        largest = max(largest, node.allocatable.get(resource, 0))
        if all(failure.reason.data.get("resource") == resource for failure in failures):
            lefts.add(_left(node, resource))
    members = min(max(1, openings.capacity.needed), _MOST_MEMBERS)
    amounts = {_rounded(resource, left // count) for left in lefts for count in range(1, members + 1)}
    least = asked / 2 if asked <= largest else 1
    return sorted(amount for amount in amounts if least <= amount < asked)[-_MOST_AMOUNTS:]


def _left(node: NodeInfo, resource: str) -> int:
    return max(0, node.allocatable.get(resource, 0) - node.requested.get(resource, 0))


def _rounded(resource: str, amount: int) -> int:
    large, small = _STEPS[resource]
    return amount - amount % (large if amount >= large else small)


def _fits(openings: Openings, amounts: Mapping[str, int]) -> bool:
    """Whether the work fits if none of its pods asks for more."""
    change = _at_most(amounts)
    pending = openings.work.pending(openings.snapshot)
    pods = [PodInfo.of({**pod.obj, "spec": change(dict(pod.spec))}) for pod in pending]
    if any(pod.requests.get(resource, 0) > amount for pod in pods for resource, amount in amounts.items()):
        return False  # its containers alone do not make it up
    return openings.work.fits(hypothesis.with_pods(openings.snapshot, pods), openings.options)


def _at_most(amounts: Mapping[str, int]) -> Change:
    """The pod's spec with no more of each resource."""

    def change(spec: Obj) -> Obj:
        for resource, amount in amounts.items():
            spec = _at_most_of(resource, amount)(spec)
        return spec

    return change


def _at_most_of(resource: str, amount: int) -> Change:
    """The pod's spec with less for the container that asks for most; a limit that equals the request stays equal."""

    def change(spec: Obj) -> Obj:
        asked = {container["name"]: _asked(container, resource) for container in spec.get("containers") or ()}
        if not asked:
            return spec
        name = max(asked, key=lambda name: asked[name])
        left = asked[name] - (sum(asked.values()) - amount)
        if not 0 < left < asked[name]:
            return spec
        return with_container(spec, name, lambda one: _with_amount(one, resource, asked[name], left))

    return change


def _asked(container: Obj, resource: str) -> int:
    sizes = container.get("resources") or {}
    amounts = (sizes.get("requests") or {}).get(resource), (sizes.get("limits") or {}).get(resource)
    return next((amount_of(resource, each) for each in amounts if each is not None), 0)


def _with_amount(container: Obj, resource: str, before: int, amount: int) -> Obj:
    sizes, text = container["resources"], _text(resource, amount)
    parts = {part: sizes[part] for part in ("requests", "limits") if resource in (sizes.get(part) or {})}
    less = {k: {**v, resource: text} for k, v in parts.items() if amount_of(resource, v[resource]) == before}
    return {**container, "resources": {**sizes, **less}}


def _text(resource: str, amount: int) -> str:
    """The amount, exactly: as many of a unit as there are."""
    if resource == "cpu":
        return amount_text(resource, amount)
    large, small = _STEPS[resource]
    return f"{amount // small}Mi" if amount % large else f"{amount // large}Gi"


def _remedy(openings: Openings, asked: Mapping[str, int], amounts: Mapping[str, int]) -> Remedy:
    change = _at_most(amounts)
    changes, costs = pod_changes(openings.snapshot, changed_pods(openings.snapshot, openings.work, change), change)
    less = " and ".join(f"{resource} {_text(resource, amount)}" for resource, amount in amounts.items())
    before = " and ".join(amount_text(resource, asked[resource]) for resource in amounts)
    text = f"ask for {less} instead of {before}"
    return Remedy("LowerRequest", text, changes, 14, True, f"each pod has less, and must be able to work so; {costs}")
