"""How many members of a group are within reach on some nodes, whatever the search would try.

Sums say so at once where the search would have to try everything: what all the nodes have left together, and the
devices of each class, against what the most modest members ask for. What is within reach still has to be found.
"""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.cluster import Snapshot
from haru.engine.decision import Obj
from haru.engine.groups.aggregates import Aggregates, DeviceCounts, free_on
from haru.engine.groups.options import Options
from haru.engine.groups.sieve import ladders_of
from haru.engine.groups.wanting import wants_of
from haru.engine.nodes.leanings import HOSTNAME
from haru.engine.pods import PodInfo


def within_reach(
    snapshot: Snapshot,
    members: Sequence[PodInfo],
    group: Obj | None,
    needed: int,
    options: Options,
    nodes: Sequence[str],
) -> int:
    """No more members than this can have places on the nodes together."""
    wants, _, _ = wants_of(snapshot, members, group, needed, options)
    free = [free_on(snapshot.nodes[name]) for name in nodes]
    resources, devices = ladders_of(wants)
    most = wants.total
    for name, ladder in resources.items():
        most = min(most, ladder.most(sum(amounts.get(name, 0) for amounts in free)))
    aggregates = Aggregates.of(snapshot, HOSTNAME)
    for key, ladder in devices.items():
        there = DeviceCounts.of(snapshot, aggregates, wants.asks[key], options.features).on_any(nodes)
        most = min(most, ladder.most(there))
        if ladder.most(there - wants.shared[key]) < needed:
            most = min(most, needed - 1)  # fewer than are needed may do without what is shared
    return most
