"""The sandbox of a pod: its control group, its names, its network."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from haru.kube.meta import Obj
from haru.kube.strategy import qos_class
from haru.node.agent.context import Context
from haru.node.cgroups.amounts import pod_amounts
from haru.node.cgroups.memory_qos import pod_values
from haru.node.cgroups.paths import CgroupName, kubepods, pod_cgroup
from haru.node.podworker.config import SandboxInputs, log_directory, sandbox_config
from haru.node.podworker.dns import dns_of
from haru.proto import cri_pb2 as cri


class Sandboxes:
    """Makes sandboxes on one node."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def group(self, pod: Obj) -> CgroupName:
        """The control group of a pod."""
        qos: Any = (pod.get("status") or {}).get("qosClass") or qos_class(pod["spec"])
        return pod_cgroup(kubepods(self._context.options.cgroups.root), qos, pod["metadata"]["uid"])

    def config(self, pod: Obj, attempt: int) -> cri.PodSandboxConfig:
        """The PodSandboxConfig of a pod. Raises `ConfigError`, `UserNamespaceError`."""
        options = self._context.options
        users = self._context.users(pod)
        dns, _ = dns_of(pod, options.dns)
        driver: Any = options.cgroups.driver
        inputs = SandboxInputs(
            log_directory=log_directory(str(options.logs), pod),
            cgroup_parent=self.group(pod).parent_for_runtime(driver) if options.cgroups.per_qos else "",
            users=cri.IDMapping(host_id=users.host_id, length=users.length) if users is not None else None,
            domain=options.dns.domain,
            seccomp=str(options.seccomp),
            dns=dns,
        )
        return sandbox_config(pod, attempt, inputs)

    async def make(self, pod: Obj, attempt: int, handler: str) -> str:
        """Make a sandbox; its id. Raises `ConfigError`, `CriError`, `CgroupError`, `UserNamespaceError`, OSError."""
        config = self.config(pod, attempt)
        for reason, message in dns_of(pod, self._context.options.dns)[1]:
            self._context.recorder.event(pod, "Warning", reason, message)
        await asyncio.to_thread(Path(config.log_directory).mkdir, parents=True, exist_ok=True)
        if self._context.cgroups.tree is not None:
            await self._context.cgroups.qos_groups.update()
            values = pod_values(self._context.cgroups.memory_qos, pod)
            amounts = replace(pod_amounts(pod), pids=self._context.options.cgroups.pod_pids_limit)
            await asyncio.to_thread(self._context.cgroups.tree.apply, self.group(pod), values, amounts)
        return await self._context.runtime.run_sandbox(config, handler)

    async def remove_group(self, pod: Obj) -> None:
        """Remove the pod's cgroup. Raises `CgroupError`."""
        if self._context.cgroups.tree is not None:
            await asyncio.to_thread(self._context.cgroups.tree.remove, self.group(pod))
