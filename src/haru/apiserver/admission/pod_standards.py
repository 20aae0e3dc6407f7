"""Adapt the PodSecurity plugin to the tables of admission: namespaces, pods and workloads with pod templates."""

from __future__ import annotations

from typing import Any

from haru.apiserver.admission import pod_security
from haru.apiserver.request.call import Call

Obj = dict[str, Any]


async def check_namespace(call: Call, namespace: Obj) -> None:
    """Check the labels of a new namespace."""
    await pod_security.check_namespace(call, namespace, None)


async def check_namespace_update(call: Call, new: Obj, old: Obj) -> None:
    """Check the labels of an updated namespace."""
    await pod_security.check_namespace(call, new, old)


async def check_pod(call: Call, pod: Obj) -> None:
    """Check a new pod."""
    await pod_security.check_pod(call, pod, None)


async def check_pod_update(call: Call, new: Obj, old: Obj) -> None:
    """Check an updated pod, also an update of its ephemeral containers."""
    await pod_security.check_pod(call, new, old)


async def check_workload(call: Call, workload: Obj) -> None:
    """Check the pod template of a new workload."""
    await pod_security.check_workload(call, workload)


async def check_workload_update(call: Call, new: Obj, old: Obj) -> None:
    """Check the pod template of an updated workload."""
    await check_workload(call, new)
