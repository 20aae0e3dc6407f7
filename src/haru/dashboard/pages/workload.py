"""The page of one workload: why it waits or where it runs, its pods, what happened."""

from __future__ import annotations

from haru.dashboard.asked import Answer, Asked
from haru.dashboard.views.workloads import Workload


async def workload(asked: Asked) -> Answer | None:
    """Tell the story of a workload; None if there is none."""
    namespace, kind, name = (asked.parts[part] for part in ("namespace", "kind", "name"))
    found = await asked.services.explanations.story(asked.view, Workload(namespace, f"{kind}/{name}"))
    return Answer(f"{namespace}/{kind}/{name}", {"found": found}) if found is not None else None
