"""Finds or makes the Workload and PodGroup of a Job whose pods must start together.

An Indexed Job with as many completions as parallelism is a gang, unless it or JobSet's exclusive placement refuses that
(`kube.jobs`). Before its first pod a Workload and then a PodGroup are created; both are found again by references,
never by parsing names, and are never changed. A Job that has started without them goes on without them; one that was
suspended before its first pod has not started. A name that somebody else took is passed over. They stay while the Job
is suspended; if it comes back with another parallelism, others are made for the pods that are left to run, and then the
old ones go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from haru.client.informer import Informer, object_key
from haru.controllers.base import Controller, log
from haru.controllers.objects import JOBS, POD_GROUPS, WORKLOADS, by_controller, is_active
from haru.kube.errors import StatusError
from haru.kube.job_groups import is_outgrown, never_started, new_pod_group, new_workload
from haru.kube.jobs import has_own_group, is_gang_job
from haru.kube.meta import Obj, controller_of, is_being_deleted, name_of, namespace_of, node_of, podgroup_of, uid_of

_MAX_NAMES = 5


class GroupPending(Exception):
    """The group cannot be had now: the Job's pods wait for it."""


class _FallBack(Exception):
    """The Job's pods are created one by one, without a group; the reason is in the log."""


def by_job(workload: Mapping[str, Any]) -> list[str]:
    """An informer's index: the Job that a Workload is for, by name."""
    reference = (workload.get("spec") or {}).get("controllerRef") or {}
    if (reference.get("apiGroup"), reference.get("kind")) != (JOBS.group, JOBS.kind):
        return []
    return [f"{namespace_of(workload)}/{reference['name']}"]


def by_workload(group: Mapping[str, Any]) -> list[str]:
    """An informer's index: the Workload that a PodGroup was made from."""
    reference = ((group.get("spec") or {}).get("podGroupTemplateRef") or {}).get("workload") or {}
    return [f"{namespace_of(group)}/{reference['workloadName']}"] if reference else []


class JobGroups:
    """Finds or makes the PodGroup of a Job."""

    def __init__(self, controller: Controller, changed: Callable[[str], None]) -> None:
        self._controller = controller
        self._changed = changed
        self.workloads = controller.informer(WORKLOADS)
        self.groups = controller.informer(POD_GROUPS)
        self.workloads.add_index("job", by_job)
        self.groups.add_index("workload", by_workload)
        self.groups.add_index("controller", by_controller)
        for informer in (self.workloads, self.groups):
            informer.add_handler(self._notify, on_delete=self._notify)

    def _notify(self, obj: Obj) -> None:
        owner = controller_of(obj)
        if owner is not None and owner.get("kind") == JOBS.kind:
            self._changed(f"{namespace_of(obj)}/{owner['name']}")

    def left_behind(self, job: Obj, active: Iterable[Obj]) -> list[str]:
        """The uids of pods that wait in a group which they no longer fill: the Job has another size than its gang."""
        waiting = [pod for pod in active if not node_of(pod) and podgroup_of(pod)]
        if not waiting or has_own_group(job["spec"]):
            return []
        if not is_gang_job(job):
            return [uid_of(pod) for pod in waiting]
        if not any(self._outgrown(job)):
            return []
        fitting = {name_of(group) for group in self.groups.by_index("controller", uid_of(job))}
        fitting -= {name_of(group) for group in self._outgrown(job)[0]}
        return [uid_of(pod) for pod in waiting if podgroup_of(pod) not in fitting]

    async def group_for(self, job: Obj, pods: Sequence[Obj], active: Sequence[Obj], left: int) -> str | None:
        """The name of the PodGroup for a Job's new pods; None: they have none.

        `pods` are those that the Job has, `active` those that go on, `left` is how many indexes are to be done.
        Raises GroupPending if the group should be there but cannot be had now.
        """
        try:
            name = None
            if is_gang_job(job):
                name = await self._find_or_create(job, pods, active, left)
            await self._retire(job, active)
        except _FallBack as why:
            log.error("job %s: its pods are created without a PodGroup: %s", object_key(job), why)
            return None
        except (StatusError, OSError) as error:
            raise GroupPending(f"the PodGroup of job {object_key(job)}: {error}") from error
        return name

    async def _find_or_create(self, job: Obj, pods: Sequence[Obj], active: Sequence[Obj], left: int) -> str | None:
        workload = self._only(self.workloads, "job", job, object_key(job))
        if workload is None:
            if any(self._outgrown(job)):
                if active:  # the others would not fill a group of their own
                    return None
            elif not never_started(job, bool(pods)):
                return self._left_alone(job)
            workload = await self._create(self.workloads, lambda attempt: new_workload(job, attempt, left), job)
            message = f"Created Workload {name_of(workload)} for Job {name_of(job)}"
            self._controller.events.event(job, "Normal", "WorkloadCreated", message)
        if len(workload["spec"].get("podGroupTemplates") or ()) != 1:
            raise _FallBack(f"Workload {name_of(workload)} has not exactly one template")
        group = self._only(self.groups, "workload", job, object_key(workload))
        if group is None:
            group = await self._create(self.groups, lambda attempt: new_pod_group(job, workload, attempt), job)
        if is_being_deleted(group) and not any(is_active(pod) and podgroup_of(pod) == name_of(group) for pod in pods):
            # Nothing keeps it: it may be gone before the first new pod is seen, and that pod would wait for ever.
            raise GroupPending(f"PodGroup {object_key(group)} is being deleted")
        return name_of(group)

    def _outgrown(self, job: Obj) -> tuple[list[Obj], list[Obj]]:
        """The PodGroups and Workloads that were made for the Job when it had another parallelism."""
        groups = self.groups.by_index("controller", uid_of(job))
        workloads = self.workloads.by_index("job", object_key(job))
        return [o for o in groups if is_outgrown(o, job)], [o for o in workloads if is_outgrown(o, job)]

    async def _retire(self, job: Obj, active: Sequence[Obj]) -> None:
        """Delete what the Job has outgrown, once none of the pods that go on is a member of it."""
        groups, workloads = self._outgrown(job)
        if {name_of(group) for group in groups} & {podgroup_of(pod) for pod in active}:
            return
        for informer, outgrown in ((self.groups, groups), (self.workloads, workloads)):
            for obj in outgrown:
                if not is_being_deleted(obj):
                    await self._remove(informer, obj)

    async def _remove(self, informer: Informer, obj: Obj) -> None:
        try:
            await self._controller.delete(informer, obj)
        except StatusError as error:
            if error.code != 403:
                raise
            # 1.36's own role has no right to it: then it goes with its Job, and holds up nobody until then.
            log.warning("%s %s stays until its Job goes: %s", informer.kind.kind, object_key(obj), error)

    def _left_alone(self, job: Obj) -> str | None:
        """The group of a Job whose Workload is gone: its members stay together as long as it stands."""
        found = [group for group in self.groups.by_index("controller", uid_of(job)) if not is_being_deleted(group)]
        return name_of(found[0]) if len(found) == 1 else None

    def _only(self, informer: Informer, index: str, job: Obj, key: str) -> Obj | None:
        """The one object that refers to `key`, which must be this Job's."""
        found = [obj for obj in informer.by_index(index, key) if not (_is_left_over(obj, job) or is_outgrown(obj, job))]
        if not found:
            return None
        if len(found) > 1:
            names = ", ".join(sorted(name_of(obj) for obj in found))
            raise _FallBack(f"several {informer.kind.plural} refer to it: {names}")
        if not _is_controlled(found[0], job):
            raise _FallBack(f"{informer.kind.kind} {name_of(found[0])} is not controlled by it")
        return found[0]

    async def _create(self, informer: Informer, body_of: Callable[[int], Obj], job: Obj) -> Obj:
        for attempt in range(_MAX_NAMES):
            body = body_of(attempt)
            try:
                return await self._controller.create(informer, body)
            except StatusError as error:
                if error.reason != "AlreadyExists":
                    raise
                # Our copy is late, or we died right after creating: take the one that stands if it is ours.
                live = await self._controller.live(informer.kind, name_of(body), namespace_of(body))
                if live is None:
                    raise
            if _is_controlled(live, job) and not is_outgrown(live, job):
                return live
        raise _FallBack(f"{informer.kind.kind} {name_of(body)} and others exist and are not controlled by it")


def _is_controlled(obj: Mapping[str, Any], job: Mapping[str, Any]) -> bool:
    return (controller_of(obj) or {}).get("uid") == uid_of(job)


def _is_left_over(obj: Mapping[str, Any], job: Mapping[str, Any]) -> bool:
    """It belongs to an earlier Job of the same name and is only waiting to be collected."""
    owner = controller_of(obj) or {}
    return (owner.get("kind"), owner.get("name")) == (JOBS.kind, name_of(job)) and owner.get("uid") != uid_of(job)
