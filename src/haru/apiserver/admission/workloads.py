"""PodGroups are created from a template that exists (KEP 4671).

A Job whose pods are scheduled as a gang keeps its parallelism while the gang's PodGroup exists (JobValidation).
"""

from __future__ import annotations

from haru.apiserver.request.call import Call
from haru.kube.errors import StatusError, forbidden_error
from haru.kube.jobs import JOB_PARALLELISM
from haru.kube.meta import Obj, annotations_of, controller_of, name_of, uid_of

_GROUPS = ("scheduling.k8s.io", "podgroups")


async def require_workload(call: Call, group: Obj) -> None:
    """A group that names a template needs the Workload, not being deleted, and the template in it."""
    reference = ((group.get("spec") or {}).get("podGroupTemplateRef") or {}).get("workload")
    if not reference:
        return
    name, template = reference.get("workloadName", ""), reference.get("podGroupTemplateName", "")
    workload = await call.objects.peek("scheduling.k8s.io", "workloads", call.namespace, name)
    if workload is None or workload["metadata"].get("deletionTimestamp"):
        raise _refusal(call, group, f'PodGroup rejected: Workload "{name}" not found')
    declared = {t.get("name") for t in (workload.get("spec") or {}).get("podGroupTemplates") or ()}
    if template not in declared:
        raise _refusal(call, group, f'PodGroup rejected: PodGroupTemplate "{template}" not found in Workload "{name}"')


async def keep_gang_size(call: Call, new: Obj, old: Obj) -> None:
    """403 for another parallelism of a Job with a gang, whose minCount never changes.

    The PodGroup is the one that the pod template names; where it names none, any that the Job controls. One that Haru's
    Job controller made does not bind a suspended Job: it is made anew when the Job comes back. While the gates are off
    PodGroups are not served, and there are none.
    """
    before = old.get("spec") or {}
    if (new.get("spec") or {}).get("parallelism") == before.get("parallelism"):
        return
    named = (((before.get("template") or {}).get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName")
    if named is not None:
        group = await call.objects.peek(*_GROUPS, call.namespace, named)
        groups = [group] if group is not None else []
    else:
        groups = [
            group
            for group in await call.objects.peek_all(*_GROUPS, call.namespace)
            if (controller_of(group) or {}).get("uid") == uid_of(old)
            and not (before.get("suspend") and JOB_PARALLELISM in annotations_of(group))
        ]
    for group in groups:
        if (group["spec"].get("schedulingPolicy") or {}).get("gang") is not None:
            why = f'cannot change parallelism for a Job referencing gang-scheduled PodGroup "{name_of(group)}"'
            raise forbidden_error("batch", "jobs", call.name, why)


def _refusal(call: Call, group: Obj, why: str) -> StatusError:
    kind = call.resource.kind
    return forbidden_error(kind.group, kind.plural, group["metadata"]["name"], why)
