"""The page of one workload: why it waits or where it runs, its pods, what happened, what it held."""

from __future__ import annotations

from haru.dashboard.asked import Answer, Asked
from haru.dashboard.pages.history import who_held
from haru.dashboard.views.workloads import Workload

_KINDS = {"pod": "Pod", "job": "Job", "podgroup": "PodGroup", "resourceclaim": "ResourceClaim"}


async def workload(asked: Asked) -> Answer | None:
    """Tell the story of a workload; None if there is none."""
    namespace, kind, name = (asked.parts[part] for part in ("namespace", "kind", "name"))
    work = Workload(namespace, f"{kind}/{name}")
    found = await asked.services.explanations.story(asked.view, work)
    if found is None:
        return None
    held = await who_held(asked, lambda each: each.work == work, "What it held")
    values = {"found": found, "held": held, "yaml": _KINDS.get(kind, ""), "name": name, "group": found.group}
    return Answer(f"{namespace}/{kind}/{name}", values)
