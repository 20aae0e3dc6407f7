"""The sandbox of a pod: its control group, its names, its network."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from haru.kube.meta import Obj
from haru.kube.strategy import qos_class
from haru.node.agent.context import Context
from haru.node.cgroups.amounts import pod_amounts
from haru.node.cgroups.memory_qos import pod_values
from haru.node.cgroups.paths import CgroupName, kubepods, pod_cgroup
from haru.node.podworker.config import SandboxInputs, log_directory, sandbox_config
from haru.node.podworker.plan import uses_host_network
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
        """The PodSandboxConfig of a pod. Raises `UserNamespaceError`."""
        options = self._context.options
        users = self._context.users(pod)
        driver: Any = options.cgroups.driver
        inputs = SandboxInputs(
            log_directory=log_directory(str(options.logs), pod),
            cgroup_parent=self.group(pod).parent_for_runtime(driver) if options.cgroups.per_qos else "",
            users=cri.IDMapping(host_id=users.host_id, length=users.length) if users is not None else None,
            dns=dns_of(pod, list(options.dns.servers), options.dns.domain),
        )
        return sandbox_config(pod, attempt, inputs)

    async def make(self, pod: Obj, attempt: int, handler: str) -> str:
        """Make a sandbox; its id. Raises `CriError`, `CgroupError`, `UserNamespaceError`, OSError."""
        config = self.config(pod, attempt)
        await asyncio.to_thread(Path(config.log_directory).mkdir, parents=True, exist_ok=True)
        if self._context.cgroups.tree is not None:
            await self._context.cgroups.qos_groups.update()
            values = pod_values(self._context.cgroups.memory_qos, pod)
            await asyncio.to_thread(self._context.cgroups.tree.apply, self.group(pod), values, pod_amounts(pod))
        return await self._context.runtime.run_sandbox(config, handler)

    async def remove_group(self, pod: Obj) -> None:
        """Remove the pod's cgroup. Raises `CgroupError`."""
        if self._context.cgroups.tree is not None:
            await asyncio.to_thread(self._context.cgroups.tree.remove, self.group(pod))


def dns_of(pod: Obj, servers: list[str], domain: str, resolv: Path = Path("/etc/resolv.conf")) -> cri.DNSConfig:
    """The content of the pod's resolv.conf."""
    spec = pod["spec"]
    policy, own = spec.get("dnsPolicy") or "ClusterFirst", spec.get("dnsConfig") or {}
    if policy == "ClusterFirst" and uses_host_network(pod):
        policy = "Default"
    found = cri.DNSConfig()
    if policy in ("ClusterFirst", "ClusterFirstWithHostNet") and servers:
        searches = [f"{pod['metadata']['namespace']}.svc.{domain}", f"svc.{domain}", domain]
        found = cri.DNSConfig(servers=servers, searches=searches, options=["ndots:5"])
    elif policy != "None":
        found = _host_dns(resolv)
    found.servers.extend(one for one in own.get("nameservers") or () if one not in found.servers)
    found.searches.extend(one for one in own.get("searches") or () if one not in found.searches)
    for option in own.get("options") or ():
        name, value = option.get("name", ""), option.get("value")
        found.options[:] = [one for one in found.options if one.partition(":")[0] != name]
        found.options.append(f"{name}:{value}" if value else name)
    return found


def _host_dns(resolv: Path) -> cri.DNSConfig:
    found = cri.DNSConfig()
    try:
        lines = resolv.read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        words = line.split()
        if words[:1] == ["nameserver"]:
            found.servers.extend(words[1:2])
        elif words[:1] == ["search"]:
            found.searches[:] = words[1:]
        elif words[:1] == ["options"]:
            found.options[:] = words[1:]
    return found
