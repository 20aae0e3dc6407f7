"""Which running work has to end so that waiting work starts: the search by which preemption finds its victims.

Units are thought away from the end of an order and come back as far as the work still fits, so none of what is left
can be spared. One search costs little more than looking at every unit once (`Search.least`).
"""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.cluster import Snapshot
from haru.engine.groups import Options
from haru.engine.groups.cycle import members_of, needed_of
from haru.engine.groups.errors import UnansweredError
from haru.engine.groups.fitting import Preemptor, places
from haru.engine.groups.preemption import Search
from haru.engine.groups.promises import with_promises
from haru.engine.groups.units import SparingOrder
from haru.engine.groups.units import Unit as Candidate
from haru.explain.holders import Unit
from haru.explain.work import Work


def least(snapshot: Snapshot, work: Work, options: Options, order: Sequence[Unit]) -> list[Unit] | None:
    """The units none of which can be spared, those that come first in `order` spared first; None if all are too few.

    Raises UnansweredError where the search gives up.
    """
    pods = [pod.obj for pod in work.pending(snapshot)]
    members, group = members_of(snapshot, pods), work.pod_group(snapshot)
    if not members:
        return None
    key = work.group if group is not None else None
    seen = with_promises(snapshot, members, groups=options.groups, now=options.now)
    needed = needed_of(seen, key, group, options)
    preemptor = Preemptor(members, key, group, needed, options, places(seen, key, group, options))
    candidates = {Candidate(unit.pods, unit.priority): unit for unit in order}
    found = Search(snapshot, preemptor).least(
        SparingOrder(tuple(candidates)), lambda unit: unit.priority, refused=True, enough=needed
    )
    return None if found is None else [candidates[unit] for unit in found.units]


def is_enough(snapshot: Snapshot, work: Work, options: Options, order: Sequence[Unit]) -> bool:
    """Whether the work fits once all these units have ended; no where the search gives up."""
    try:
        return least(snapshot, work, options, order) is not None
    except UnansweredError:
        return False
