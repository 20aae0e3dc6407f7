"""PodGroups: protected while pods need them, and made from a template that exists (KEP 4671)."""

from __future__ import annotations

from typing import Any

from haru.apiserver.request.call import Call
from haru.kube.errors import StatusError, forbidden_error

Obj = dict[str, Any]

PROTECTION = "scheduling.k8s.io/podgroup-protection"


async def add_protection(call: Call, group: Obj) -> None:
    """The finalizer that keeps a group until no active pod refers to it."""
    finalizers = list(group["metadata"].get("finalizers") or ())
    if PROTECTION not in finalizers:
        finalizers.append(PROTECTION)
    group["metadata"]["finalizers"] = finalizers


async def require_workload(call: Call, group: Obj) -> None:
    """A group that names a template needs the Workload, not being deleted, and the template in it."""
    reference = ((group.get("spec") or {}).get("podGroupTemplateRef") or {}).get("workload")
    if not reference:
        return
    name, template = reference.get("workloadName", ""), reference.get("podGroupTemplateName", "")
    workload = await call.core.peek("scheduling.k8s.io", "workloads", call.namespace, name)
    if workload is None or workload["metadata"].get("deletionTimestamp"):
        raise _refusal(call, group, f'PodGroup rejected: Workload "{name}" not found')
    declared = {t.get("name") for t in (workload.get("spec") or {}).get("podGroupTemplates") or ()}
    if template not in declared:
        raise _refusal(call, group, f'PodGroup rejected: PodGroupTemplate "{template}" not found in Workload "{name}"')


def _refusal(call: Call, group: Obj, why: str) -> StatusError:
    kind = call.resource.kind
    return forbidden_error(kind.group, kind.plural, group["metadata"]["name"], why)
