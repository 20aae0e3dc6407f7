"""ttl-after-finished-controller: deletes Jobs a while after they finished.

Source: batch/v1 Job, ttlSecondsAfterFinished (KEP-592).
"""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from haru.client.informer import object_key
from haru.controllers.base import Context, Controller
from haru.controllers.job_verdict import true_condition
from haru.controllers.objects import JOBS
from haru.kube.kinds import Kind
from haru.kube.meta import Obj, is_being_deleted, uid_of
from haru.kube.names import parse_time


class TtlAfterFinishedController(Controller):
    """Deletes finished Jobs whose time is over."""

    name: ClassVar[str] = "ttl-after-finished-controller"
    needs: ClassVar[tuple[Kind, ...]] = (JOBS,)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.jobs = self.informer(JOBS)
        self.jobs.add_handler(self._changed, lambda _, new: self._changed(new))

    def _changed(self, job: Obj) -> None:
        if job["spec"].get("ttlSecondsAfterFinished") is not None:
            self.queue.add(object_key(job))

    def _remaining(self, job: Obj) -> float | None:
        ttl = job["spec"].get("ttlSecondsAfterFinished")
        for type_ in ("Complete", "Failed"):
            condition = true_condition(job, type_)
            if ttl is not None and condition is not None:
                due = parse_time(condition["lastTransitionTime"]) + timedelta(seconds=ttl)
                return (due - self.now()).total_seconds()
        return None

    async def sync(self, key: str) -> float | None:
        """Delete one Job if its time is over."""
        namespace, _, name = key.partition("/")
        job = self.jobs.get(name, namespace)
        if job is None or is_being_deleted(job):
            return None
        remaining = self._remaining(job)
        if remaining is None or remaining > 0:
            return remaining
        # The time to live may have been raised a moment ago: only the live object counts.
        live = await self.live(JOBS, name, namespace)
        if live is None or uid_of(live) != uid_of(job):
            return None
        remaining = self._remaining(live)
        if remaining is None or remaining > 0:
            return remaining
        await self.delete(self.jobs, live, propagation_policy="Foreground")
        return None
