"""Sandboxes and containers as the runtime is told of them.

Source: the kubelet's conversion of a pod to CRI messages, as behaviour; labels and annotations are those that other
tools read.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from haru.kube.meta import annotations_of, labels_of
from haru.node.cgroups.amounts import Amounts
from haru.node.cri import containers as c
from haru.node.cri import messages as m
from haru.node.podworker import observed as names
from haru.node.podworker.plan import container_hash, uses_host_network

Obj = dict[str, Any]
_PROTOCOLS = {"TCP": 0, "UDP": 1, "SCTP": 2}
_PROFILES = {"RuntimeDefault": m.RUNTIME_DEFAULT, "Unconfined": m.UNCONFINED, "Localhost": m.LOCALHOST}
_POLICIES = {"Merge": 0, "Strict": 1}
_MASKED = (
    "/proc/asound", "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
    "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
)  # fmt: skip
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the agent has made ready for one start of a container."""

    sandbox: str
    attempt: int
    environment: Mapping[str, bytes]
    command: Sequence[str] = ()
    args: Sequence[str] = ()
    mounts: Sequence[c.Mount] = ()
    devices: Sequence[c.Device] = ()
    cdi: Sequence[str] = ()
    amounts: Amounts | None = None
    image_ref: str = ""
    log_path: str = ""
    users: m.IDMapping | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)


def pod_labels(pod: Obj) -> dict[str, str]:
    """Labels of a sandbox: the pod's own and who it is."""
    meta = pod["metadata"]
    own = {names.POD_NAME: meta["name"], names.POD_NAMESPACE: meta["namespace"], names.POD_UID: meta["uid"]}
    return {**labels_of(pod), **own}


def sandbox_config(
    pod: Obj,
    attempt: int,
    *,
    log_directory: str,
    cgroup_parent: str,
    dns: m.DNSConfig | None,
    users: m.IDMapping | None = None,
) -> m.PodSandboxConfig:
    """The sandbox of a pod. `users` are those of its own user namespace."""
    spec, meta = pod["spec"], pod["metadata"]
    context = spec.get("securityContext") or {}
    security = m.LinuxSandboxSecurityContext(
        namespace_options=namespaces(pod, users=users),
        selinux_options=_selinux(context),
        run_as_user=context.get("runAsUser"),
        supplemental_groups=_groups(context),
        privileged=any(_context(one).get("privileged") for one in _all(spec)),
        run_as_group=context.get("runAsGroup") if context.get("runAsUser") is not None else None,
        seccomp=_profile(context.get("seccompProfile")) or m.SecurityProfile(m.RUNTIME_DEFAULT),
        supplemental_groups_policy=_POLICIES.get(context.get("supplementalGroupsPolicy", ""), 0),
    )
    hostname = "" if uses_host_network(pod) else (spec.get("hostname") or meta["name"])[:63].rstrip("-.")
    return m.PodSandboxConfig(
        metadata=m.PodSandboxMetadata(meta["name"], meta["uid"], meta["namespace"], attempt),
        hostname=hostname,
        log_directory=log_directory,
        dns_config=dns,
        port_mappings=_ports(pod),
        labels=pod_labels(pod),
        annotations={**annotations_of(pod), "kubernetes.io/config.source": "api"},
        linux=m.LinuxPodSandboxConfig(
            cgroup_parent=cgroup_parent,
            security_context=security,
            sysctls={entry["name"]: entry["value"] for entry in context.get("sysctls") or ()},
        ),
    )


def container_config(pod: Obj, container: Mapping[str, Any], around: Surroundings) -> c.ContainerConfig:
    """One start of a container."""
    labels = {**pod_labels_only(pod), names.CONTAINER_NAME: container["name"]}
    noted = {
        names.HASH: container_hash(container),
        names.RESTART_COUNT: str(around.attempt),
        names.MESSAGE_PATH: container.get("terminationMessagePath") or "/dev/termination-log",
        names.MESSAGE_POLICY: container.get("terminationMessagePolicy") or "File",
        names.GRACE_PERIOD: str(pod["spec"].get("terminationGracePeriodSeconds", 30)),
        **around.annotations,
    }
    return c.ContainerConfig(
        metadata=c.ContainerMetadata(container["name"], around.attempt),
        image=c.ImageSpec(around.image_ref or container["image"], user_specified_image=container["image"]),
        command=list(around.command),
        args=list(around.args),
        working_dir=container.get("workingDir", ""),
        envs=[c.KeyValue(name, value) for name, value in around.environment.items()],
        mounts=list(around.mounts),
        devices=list(around.devices),
        labels=labels,
        annotations=noted,
        log_path=around.log_path,
        stdin=bool(container.get("stdin")),
        stdin_once=bool(container.get("stdinOnce")),
        tty=bool(container.get("tty")),
        linux=c.LinuxContainerConfig(resources_message(around.amounts), _security(pod, container, around.users)),
        cdi_devices=[c.CDIDevice(name) for name in around.cdi],
    )


def pod_labels_only(pod: Obj) -> dict[str, str]:
    """Who a container's pod is."""
    meta = pod["metadata"]
    return {names.POD_NAME: meta["name"], names.POD_NAMESPACE: meta["namespace"], names.POD_UID: meta["uid"]}


def resources_message(amounts: Amounts | None) -> m.LinuxContainerResources | None:
    """Amounts as the runtime takes them."""
    if amounts is None:
        return None
    return m.LinuxContainerResources(
        cpu_period=amounts.cpu_period,
        cpu_quota=amounts.cpu_quota,
        cpu_shares=amounts.cpu_shares,
        memory_limit_in_bytes=amounts.memory_limit,
        oom_score_adj=amounts.oom_score_adj,
        hugepage_limits=[m.HugepageLimit(size, limit) for size, limit in amounts.huge_pages.items()],
        unified=dict(amounts.unified),
    )


def namespaces(pod: Obj, *, users: m.IDMapping | None = None) -> m.NamespaceOption:
    """Which namespaces a pod has for itself: it shares processes only if it says so."""
    spec = pod["spec"]
    pid = m.NODE if spec.get("hostPID") else m.POD if spec.get("shareProcessNamespace") else m.CONTAINER
    options = m.NamespaceOption(
        m.NODE if uses_host_network(pod) else m.POD, pid, m.NODE if spec.get("hostIPC") else m.POD
    )
    if users is not None:
        options.userns_options = m.UserNamespace(m.POD, [users], [users])
    return options


def log_directory(root: str, pod: Obj) -> str:
    """Where a pod's logs are."""
    meta = pod["metadata"]
    return posixpath.join(root, f"{meta['namespace']}_{meta['name']}_{meta['uid']}")


def log_path(container: str, attempt: int) -> str:
    """Where a container's log is, below the pod's."""
    return f"{container}/{attempt}.log"


# -- security ---------------------------------------------------------------------------------------------------------


def _security(pod: Obj, container: Mapping[str, Any], users: m.IDMapping | None) -> c.LinuxContainerSecurityContext:
    of_pod, own = pod["spec"].get("securityContext") or {}, _context(container)
    merged = {**{key: of_pod[key] for key in of_pod if of_pod[key] is not None}, **own}
    privileged = bool(own.get("privileged"))
    capabilities = own.get("capabilities") or {}
    escalates = own.get("allowPrivilegeEscalation")
    default_proc = (own.get("procMount") or "Default") == "Default" and not privileged
    return c.LinuxContainerSecurityContext(
        capabilities=c.Capability(list(capabilities.get("add") or ()), list(capabilities.get("drop") or ())),
        privileged=privileged,
        namespace_options=namespaces(pod, users=users),
        selinux_options=_selinux(merged),
        run_as_user=merged.get("runAsUser"),
        readonly_rootfs=bool(own.get("readOnlyRootFilesystem")),
        supplemental_groups=_groups(of_pod),
        no_new_privs=escalates is False and not privileged,
        run_as_group=merged.get("runAsGroup"),
        masked_paths=list(_MASKED) if default_proc else [],
        readonly_paths=list(_READ_ONLY) if default_proc else [],
        seccomp=_profile(merged.get("seccompProfile")) or m.SecurityProfile(m.UNCONFINED),
        apparmor=_profile(merged.get("appArmorProfile")),
        supplemental_groups_policy=_POLICIES.get(of_pod.get("supplementalGroupsPolicy", ""), 0),
    )


def _context(container: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = container.get("securityContext") or {}
    return found


def _all(spec: Obj) -> list[Obj]:
    return [*(spec.get("initContainers") or ()), *spec["containers"]]


def _groups(context: Mapping[str, Any]) -> list[int]:
    group = context.get("fsGroup")
    return [*(context.get("supplementalGroups") or ()), *([group] if group is not None else [])]


def _selinux(context: Mapping[str, Any]) -> m.SELinuxOption | None:
    found = context.get("seLinuxOptions")
    return m.SELinuxOption(**{key: found.get(key, "") for key in ("user", "role", "type", "level")}) if found else None


def _profile(profile: Mapping[str, Any] | None) -> m.SecurityProfile | None:
    if not profile:
        return None
    return m.SecurityProfile(_PROFILES[profile["type"]], profile.get("localhostProfile", ""))


def _ports(pod: Obj) -> list[m.PortMapping]:
    if uses_host_network(pod):
        return []
    return [
        m.PortMapping(
            _PROTOCOLS.get(port.get("protocol", "TCP"), 0),
            port["containerPort"],
            port["hostPort"],
            port.get("hostIP", ""),
        )
        for container in _all(pod["spec"])
        for port in container.get("ports") or ()
        if port.get("hostPort")
        for host_ip in (port.get("hostIP") or "",)
    ]
