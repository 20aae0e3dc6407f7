"""JobValidation: a Job whose pods are scheduled as a gang keeps its parallelism while the gang's PodGroup is there."""

from __future__ import annotations

from typing import Any

from haru.apiserver.request.call import Call
from haru.kube.errors import forbidden_error
from haru.kube.jobs import JOB_PARALLELISM
from haru.kube.meta import annotations_of, controller_of, name_of, uid_of

Obj = dict[str, Any]

_GROUPS = ("scheduling.k8s.io", "podgroups")


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
        group = await call.core.peek(*_GROUPS, call.namespace, named)
        groups = [group] if group is not None else []
    else:
        groups = [
            group
            for group in await call.core.peek_all(*_GROUPS, call.namespace)
            if (controller_of(group) or {}).get("uid") == uid_of(old)
            and not (before.get("suspend") and JOB_PARALLELISM in annotations_of(group))
        ]
    for group in groups:
        if (group["spec"].get("schedulingPolicy") or {}).get("gang") is not None:
            why = f'cannot change parallelism for a Job referencing gang-scheduled PodGroup "{name_of(group)}"'
            raise forbidden_error("batch", "jobs", call.name, why)
