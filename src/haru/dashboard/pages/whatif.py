"""What a change would do: before and after."""

from __future__ import annotations

from haru.dashboard.asked import Answer, Asked
from haru.dashboard.redaction.objects import HIDDEN
from haru.dashboard.views.difference import difference_page
from haru.dashboard.whatif import AskedChange, NotAnswered
from haru.drivers.simulated.profiles import profile_names
from haru.engine import Snapshot

_MOST_NAMES = 300
"""Names that a field of the form proposes."""


async def whatif(asked: Asked) -> Answer:
    """Try the change that the query names on a copy of the cluster; without one, say what can be asked."""
    change, found, why = AskedChange.of(asked.query), None, ""
    if change.change:
        try:
            told = await asked.services.what_if.answer(asked.view, change, asked.services)
            found = await asked.compute(lambda: difference_page(told, asked.query))
        except NotAnswered as error:
            why = str(error)
    snapshot = asked.view.snapshot
    known = {"nodes": sorted(snapshot.node_names)[:_MOST_NAMES], "groups": _groups(snapshot)}
    return Answer("What if", {"found": found, "why": why, "change": change, "profiles": profile_names(), **known})


def _groups(snapshot: Snapshot) -> list[str]:
    """The PodGroups that may be named."""
    return sorted(path for path in snapshot.pod_groups if path.partition("/")[0] != HIDDEN)[:_MOST_NAMES]
