"""Places that are kept for pending pods until their victims are gone: a node, devices, and the victims.

A decision has reserved the node and the devices, which will be free once the evicted pods are gone. Until then other
pods must fit both beside those pods and, later, beside the nominated ones. The API has a
field for the node alone (`status.nominatedNodeName`), so devices and the evictions are remembered here.
Source: KEP-268 and KEP-5278 (nominated nodes); devices and evictions our own (docs/adr/0004).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from haru.engine.state.decision import ClaimAllocation, Decision, Obj, PodKey

FROM_EVERYBODY = 2**31
"""The priority of a place that is kept whoever comes: above every pod's."""


@dataclass(frozen=True, slots=True)
class Nomination:
    """A place kept for a pod, from all that are no more important than `priority`.

    `claimed` is what its devices will take of the node (KEP-5517).
    """

    pod: PodKey
    node: str
    priority: int
    allocations: tuple[ClaimAllocation, ...] = ()
    evictions: frozenset[PodKey] = frozenset()
    claimed: tuple[Obj, ...] = ()


def nominations_of(decision: Decision, priority: int) -> tuple[Nomination, ...]:
    """Return the places to keep for a decision of status nominated."""
    going = frozenset(eviction.pod for eviction in decision.evictions)
    return tuple(
        Nomination(member.pod, member.node or "", priority, member.allocations, going, member.claimed)
        for member in decision.nominated
    )


def evicted_pods(nominations: Iterable[Nomination]) -> frozenset[PodKey]:
    """Return the victims that the nominations wait for."""
    return frozenset(pod for nomination in nominations for pod in nomination.evictions)
