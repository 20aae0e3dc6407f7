"""PodSecurity's place in the tables of admission: namespaces, pods, and the workloads that make pods."""

from __future__ import annotations

from typing import Any

from haru.apiserver.call import Call

Obj = dict[str, Any]


async def check_namespace(call: Call, namespace: Obj) -> None:
    """On create of a namespace."""
    if call.core.pod_security is not None:
        await call.core.pod_security.check_namespace(call, namespace, None)


async def check_namespace_update(call: Call, new: Obj, old: Obj) -> None:
    """On update of a namespace."""
    if call.core.pod_security is not None:
        await call.core.pod_security.check_namespace(call, new, old)


async def check_pod(call: Call, pod: Obj) -> None:
    """On create of a pod."""
    if call.core.pod_security is not None:
        await call.core.pod_security.check_pod(call, pod, None)


async def check_pod_update(call: Call, new: Obj, old: Obj) -> None:
    """On update of a pod, or of its ephemeral containers."""
    if call.core.pod_security is not None:
        await call.core.pod_security.check_pod(call, new, old)


async def check_workload(call: Call, workload: Obj) -> None:
    """On create of an object that holds a template of pods."""
    if call.core.pod_security is not None:
        await call.core.pod_security.check_workload(call, workload)


async def check_workload_update(call: Call, new: Obj, old: Obj) -> None:
    """On update of such an object."""
    await check_workload(call, new)
