"""The Workload and PodGroup of a Job whose pods must start together.

An Indexed Job with as many completions as parallelism is a gang. Before its first pod a Workload and then a PodGroup
are created; both are found again by references, never by parsing names, and are never changed. A Job that has started
without them goes on without them; one that was suspended before its first pod has not started. Names are derived from
the Job alone: creating twice meets the first one, and a name that somebody else took is passed over.
Source: KEP-5547; a template name that would be too long is cut and hashed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from haru.client.informer import Informer, object_key
from haru.controllers.base import Controller, log
from haru.controllers.objects import JOBS, POD_GROUPS, WORKLOADS, Obj, by_controller, is_active
from haru.kube.errors import StatusError
from haru.kube.jobs import COUNT_SUCCEEDED, is_gang_job
from haru.kube.meta import controller_of, is_being_deleted, name_of, namespace_of, owner_reference, uid_of
from haru.kube.names import NAME_ALPHABET

_MAX_NAME = 253
_MAX_TEMPLATE_NAME = 63
_MAX_NAMES = 5


class GroupPending(Exception):
    """The group cannot be had now: the Job's pods wait for it."""


class _FallBack(Exception):
    """The Job's pods are created one by one, without a group; the reason is in the log."""


def _fnv32a(data: bytes) -> int:
    value = 0x811C9DC5
    for byte in data:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def _hash(text: str) -> str:
    """The decimal digits of FNV-1a, each as a letter that forms no words."""
    return "".join(NAME_ALPHABET[ord(c) % len(NAME_ALPHABET)] for c in str(_fnv32a(text.encode())))


def template_name(job_name: str) -> str:
    """`<job>-pgt-0`; a Job name that leaves no room is cut and its hash added."""
    name = f"{job_name}-pgt-0"
    if len(name) <= _MAX_TEMPLATE_NAME:
        return name
    suffix = f"-{_hash(job_name)}-pgt-0"
    return job_name[: _MAX_TEMPLATE_NAME - len(suffix)].rstrip("-.") + suffix


def workload_name(job: Mapping[str, Any], attempt: int = 0) -> str:
    """`<job>-<hash of its uid>`; another hash for each further attempt, when the name was taken."""
    suffix = "-" + _hash(uid_of(job) + _further(attempt))
    return name_of(job)[: _MAX_NAME - len(suffix)].rstrip("-.") + suffix


def pod_group_name(workload: str, template: str, attempt: int = 0) -> str:
    """`<workload>-<template>-<hash of both>`; if too long each part gets half, or what the other leaves over."""
    suffix = "-" + _hash(workload + template + _further(attempt))
    room = _MAX_NAME - len(suffix) - 1
    if len(workload) + len(template) > room:
        half = room // 2
        of_workload = max(half, room - len(template))
        workload = workload[:of_workload].rstrip("-.")
        template = template[: room - len(workload)].rstrip("-.")
    return f"{workload}-{template}{suffix}"


def _further(attempt: int) -> str:
    return f"/{attempt}" if attempt else ""


def never_started(job: Mapping[str, Any], has_pods: bool) -> bool:
    """The Job has no history: only then its group is made. To have been suspended is no history."""
    status = job.get("status") or {}
    return not (has_pods or status.get("startTime") or status.get("succeeded") or status.get("failed"))


def new_workload(job: Mapping[str, Any], attempt: int = 0) -> Obj:
    """The Workload for a Job."""
    gang = {"gang": {"minCount": job["spec"]["parallelism"]}}
    return {
        "apiVersion": WORKLOADS.api_version,
        "kind": WORKLOADS.kind,
        "metadata": {
            "name": workload_name(job, attempt),
            "namespace": namespace_of(job),
            "ownerReferences": [owner_reference(job, JOBS)],
        },
        "spec": {
            "controllerRef": {"apiGroup": JOBS.group, "kind": JOBS.kind, "name": name_of(job)},
            "podGroupTemplates": [{"name": template_name(name_of(job)), "schedulingPolicy": gang}],
        },
    }


def new_pod_group(job: Mapping[str, Any], workload: Mapping[str, Any], attempt: int = 0) -> Obj:
    """The PodGroup for the only template of a Job's Workload: the template's policy, copied."""
    template = workload["spec"]["podGroupTemplates"][0]
    spec = {key: value for key, value in template.items() if key != "name" and value is not None}
    reference = {"workloadName": name_of(workload), "podGroupTemplateName": template["name"]}
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": POD_GROUPS.kind,
        "metadata": {
            "name": pod_group_name(name_of(workload), template["name"], attempt),
            "namespace": namespace_of(job),
            "annotations": {COUNT_SUCCEEDED: "true"},  # an index that is done is not missing
            # The Workload is an owner, but not one whose deletion waits for the group.
            "ownerReferences": [owner_reference(job, JOBS), owner_reference(workload, WORKLOADS, controller=False)],
        },
        "spec": {"podGroupTemplateRef": {"workload": reference}, **spec},
    }


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

    async def group_for(self, job: Obj, pods: Sequence[Obj]) -> str | None:
        """The name of the PodGroup for a Job's new pods, given those that it has; None: they have none.

        Raises GroupPending if the group should be there but cannot be had now.
        """
        if not is_gang_job(job["spec"]):
            return None
        try:
            return await self._find_or_create(job, pods)
        except _FallBack as why:
            log.error("job %s: its pods are created without a PodGroup: %s", object_key(job), why)
            return None
        except (StatusError, OSError) as error:
            raise GroupPending(f"the PodGroup of job {object_key(job)}: {error}") from error

    async def _find_or_create(self, job: Obj, pods: Sequence[Obj]) -> str | None:
        workload = self._only(self.workloads, "job", job, object_key(job))
        if workload is None:
            if not never_started(job, bool(pods)):
                return self._left_alone(job)
            workload = await self._create(self.workloads, lambda attempt: new_workload(job, attempt), job)
            message = f"Created Workload {name_of(workload)} for Job {name_of(job)}"
            self._controller.events.event(job, "Normal", "WorkloadCreated", message)
        if len(workload["spec"].get("podGroupTemplates") or ()) != 1:
            raise _FallBack(f"Workload {name_of(workload)} has not exactly one template")
        group = self._only(self.groups, "workload", job, object_key(workload))
        if group is None:
            group = await self._create(self.groups, lambda attempt: new_pod_group(job, workload, attempt), job)
        if is_being_deleted(group) and not any(is_active(pod) and _group_of(pod) == name_of(group) for pod in pods):
            # Nothing keeps it: it may be gone before the first new pod is seen, and that pod would wait for ever.
            raise GroupPending(f"PodGroup {object_key(group)} is being deleted")
        return name_of(group)

    def _left_alone(self, job: Obj) -> str | None:
        """The group of a Job whose Workload is gone: its members stay together as long as it stands."""
        found = [group for group in self.groups.by_index("controller", uid_of(job)) if not is_being_deleted(group)]
        return name_of(found[0]) if len(found) == 1 else None

    def _only(self, informer: Informer, index: str, job: Obj, key: str) -> Obj | None:
        """The one object that refers to `key`, which must be this Job's."""
        found = [obj for obj in informer.by_index(index, key) if not _is_left_over(obj, job)]
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
            if _is_controlled(live, job):
                return live
        raise _FallBack(f"{informer.kind.kind} {name_of(body)} and others exist and are not controlled by it")


def _is_controlled(obj: Mapping[str, Any], job: Mapping[str, Any]) -> bool:
    return (controller_of(obj) or {}).get("uid") == uid_of(job)


def _is_left_over(obj: Mapping[str, Any], job: Mapping[str, Any]) -> bool:
    """It belongs to an earlier Job of the same name and is only waiting to be collected."""
    owner = controller_of(obj) or {}
    return (owner.get("kind"), owner.get("name")) == (JOBS.kind, name_of(job)) and owner.get("uid") != uid_of(job)


def _group_of(pod: Mapping[str, Any]) -> str:
    return str((pod["spec"].get("schedulingGroup") or {}).get("podGroupName") or "")
