"""CRI messages for the sandbox and the containers of a pod.

Source: the kubelet's conversion of a pod to CRI messages, as behaviour; labels and annotations are those that other
tools read.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from haru.kube.meta import Obj, annotations_of, labels_of
from haru.node.cgroups.amounts import Amounts
from haru.node.podworker import observed as names
from haru.node.podworker.host_names import kernel_name
from haru.node.podworker.plan import container_hash, uses_host_network
from haru.proto import cri_pb2 as cri

_PROTOCOLS = {"TCP": cri.TCP, "UDP": cri.UDP, "SCTP": cri.SCTP}
_PROFILES = {
    "RuntimeDefault": cri.SecurityProfile.RuntimeDefault,
    "Unconfined": cri.SecurityProfile.Unconfined,
    "Localhost": cri.SecurityProfile.Localhost,
}
_POLICIES = {"Merge": cri.Merge, "Strict": cri.Strict}
_MASKED = (
    "/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
    "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
    "/sys/devices/virtual/powercap",
)  # fmt: skip
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


@dataclass(frozen=True, slots=True)
class ContainerInputs:
    """What the agent has made ready for one start of a container."""

    sandbox: str
    attempt: int
    environment: Mapping[str, bytes]
    command: Sequence[str] = ()
    args: Sequence[str] = ()
    mounts: Sequence[cri.Mount] = ()
    devices: Sequence[cri.Device] = ()
    cdi: Sequence[str] = ()
    amounts: Amounts | None = None
    image_ref: str = ""
    log_path: str = ""
    users: cri.IDMapping | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    target: str = ""
    """Runtime id of the container whose process namespace it joins."""
    seccomp: str = ""
    """The directory of this machine's seccomp profiles."""
    throttle_paths: Sequence[str] = ()
    """Where this machine says how warm its processors were, which is as good as knowing what others do."""


def pod_labels(pod: Obj) -> dict[str, str]:
    """Labels of a sandbox: the pod's own and who it is."""
    return {**labels_of(pod), **pod_labels_only(pod)}


@dataclass(frozen=True, slots=True)
class SandboxInputs:
    """What the agent has made ready for a sandbox; `users` are those of the pod's own user namespace."""

    log_directory: str
    cgroup_parent: str = ""
    dns: cri.DNSConfig | None = None
    users: cri.IDMapping | None = None
    domain: str = "cluster.local"
    """The cluster's DNS domain."""
    seccomp: str = ""
    """The directory of this machine's seccomp profiles."""


def sandbox_config(pod: Obj, attempt: int, inputs: SandboxInputs) -> cri.PodSandboxConfig:
    """The sandbox of a pod."""
    spec, meta = pod["spec"], pod["metadata"]
    context = spec.get("securityContext") or {}
    security = cri.LinuxSandboxSecurityContext(
        namespace_options=namespaces(pod, users=inputs.users),
        selinux_options=_selinux(context),
        run_as_user=_int64(context.get("runAsUser")),
        supplemental_groups=_groups(context),
        privileged=any(_context(one).get("privileged") for one in _all(spec)),
        run_as_group=_int64(context.get("runAsGroup")) if context.get("runAsUser") is not None else None,
        seccomp=_profile(context.get("seccompProfile") or {"type": "RuntimeDefault"}, inputs.seccomp),
        supplemental_groups_policy=_POLICIES.get(context.get("supplementalGroupsPolicy", "")),
    )
    return cri.PodSandboxConfig(
        metadata=cri.PodSandboxMetadata(
            name=meta["name"], uid=meta["uid"], namespace=meta["namespace"], attempt=attempt
        ),
        hostname="" if uses_host_network(pod) else kernel_name(pod, inputs.domain),
        log_directory=inputs.log_directory,
        dns_config=inputs.dns,
        port_mappings=_ports(pod),
        labels=pod_labels(pod),
        annotations={**annotations_of(pod), "kubernetes.io/config.source": "api"},
        linux=cri.LinuxPodSandboxConfig(
            cgroup_parent=inputs.cgroup_parent,
            security_context=security,
            sysctls={entry["name"]: entry["value"] for entry in context.get("sysctls") or ()},
        ),
    )


def container_config(pod: Obj, container: Mapping[str, Any], inputs: ContainerInputs) -> cri.ContainerConfig:
    """One start of a container."""
    labels = {**pod_labels_only(pod), names.CONTAINER_NAME: container["name"]}
    noted = {
        names.HASH: container_hash(container),
        names.RESTART_COUNT: str(inputs.attempt),
        names.MESSAGE_PATH: container.get("terminationMessagePath") or "/dev/termination-log",
        names.MESSAGE_POLICY: container.get("terminationMessagePolicy") or "File",
        names.GRACE_PERIOD: str(pod["spec"].get("terminationGracePeriodSeconds", 30)),
        **inputs.annotations,
    }
    return cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name=container["name"], attempt=inputs.attempt),
        image=cri.ImageSpec(image=inputs.image_ref or container["image"], user_specified_image=container["image"]),
        command=inputs.command,
        args=inputs.args,
        working_dir=container.get("workingDir", ""),
        envs=[cri.KeyValue(key=name, value=value) for name, value in inputs.environment.items()],
        mounts=inputs.mounts,
        devices=inputs.devices,
        labels=labels,
        annotations=noted,
        log_path=inputs.log_path,
        stdin=bool(container.get("stdin")),
        stdin_once=bool(container.get("stdinOnce")),
        tty=bool(container.get("tty")),
        linux=cri.LinuxContainerConfig(
            resources=resources_message(inputs.amounts), security_context=_security(pod, container, inputs)
        ),
        CDI_devices=[cri.CDIDevice(name=name) for name in inputs.cdi],
    )


def pod_labels_only(pod: Obj) -> dict[str, str]:
    """The labels of a container that name its pod."""
    meta = pod["metadata"]
    return {names.POD_NAME: meta["name"], names.POD_NAMESPACE: meta["namespace"], names.POD_UID: meta["uid"]}


def resources_message(amounts: Amounts | None) -> cri.LinuxContainerResources | None:
    """Turn amounts into the CRI's resources."""
    if amounts is None:
        return None
    return cri.LinuxContainerResources(
        cpu_period=amounts.cpu_period,
        cpu_quota=amounts.cpu_quota,
        cpu_shares=amounts.cpu_shares,
        memory_limit_in_bytes=amounts.memory_limit,
        oom_score_adj=amounts.oom_score_adj,
        hugepage_limits=[cri.HugepageLimit(page_size=size, limit=limit) for size, limit in amounts.huge_pages.items()],
        unified=amounts.unified,
    )


def namespaces(pod: Obj, *, users: cri.IDMapping | None = None, target: str = "") -> cri.NamespaceOption:
    """The namespaces of a sandbox or container; processes are shared with shareProcessNamespace or a target's."""
    spec = pod["spec"]
    pid = cri.NODE if spec.get("hostPID") else cri.POD if spec.get("shareProcessNamespace") else cri.CONTAINER
    if target:
        pid = cri.TARGET
    return cri.NamespaceOption(
        network=cri.NODE if uses_host_network(pod) else cri.POD,
        pid=pid,
        target_id=target,
        ipc=cri.NODE if spec.get("hostIPC") else cri.POD,
        userns_options=cri.UserNamespace(mode=cri.POD, uids=[users], gids=[users]) if users is not None else None,
    )


def log_directory(root: str, pod: Obj) -> str:
    """Where a pod's logs are."""
    meta = pod["metadata"]
    return posixpath.join(root, f"{meta['namespace']}_{meta['name']}_{meta['uid']}")


def log_path(container: str, attempt: int) -> str:
    """Where a container's log is, below the pod's."""
    return f"{container}/{attempt}.log"


# -- security ---------------------------------------------------------------------------------------------------------


def _security(pod: Obj, container: Mapping[str, Any], inputs: ContainerInputs) -> cri.LinuxContainerSecurityContext:
    of_pod, own = pod["spec"].get("securityContext") or {}, _context(container)
    merged = {**{key: of_pod[key] for key in of_pod if of_pod[key] is not None}, **own}
    privileged = bool(own.get("privileged"))
    capabilities = own.get("capabilities") or {}
    escalates = own.get("allowPrivilegeEscalation")
    default_proc = (own.get("procMount") or "Default") == "Default" and not privileged
    return cri.LinuxContainerSecurityContext(
        capabilities=cri.Capability(
            add_capabilities=capabilities.get("add"), drop_capabilities=capabilities.get("drop")
        ),
        privileged=privileged,
        namespace_options=namespaces(pod, users=inputs.users, target=inputs.target),
        selinux_options=_selinux(merged),
        run_as_user=_int64(merged.get("runAsUser")),
        readonly_rootfs=bool(own.get("readOnlyRootFilesystem")),
        supplemental_groups=_groups(of_pod),
        no_new_privs=escalates is False and not privileged,
        run_as_group=_int64(merged.get("runAsGroup")),
        masked_paths=(*_MASKED, *inputs.throttle_paths) if default_proc else (),
        readonly_paths=_READ_ONLY if default_proc else (),
        seccomp=_profile(merged.get("seccompProfile") or {"type": "Unconfined"}, inputs.seccomp),
        apparmor=_profile(merged.get("appArmorProfile")),
        supplemental_groups_policy=_POLICIES.get(of_pod.get("supplementalGroupsPolicy", "")),
    )


def _context(container: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = container.get("securityContext") or {}
    return found


def _all(spec: Obj) -> list[Obj]:
    return [*(spec.get("initContainers") or ()), *spec["containers"]]


def _groups(context: Mapping[str, Any]) -> list[int]:
    group = context.get("fsGroup")
    return [*(context.get("supplementalGroups") or ()), *([group] if group is not None else [])]


def _int64(value: int | None) -> cri.Int64Value | None:
    return cri.Int64Value(value=value) if value is not None else None


def _selinux(context: Mapping[str, Any]) -> cri.SELinuxOption | None:
    found = context.get("seLinuxOptions")
    return cri.SELinuxOption(**{key: found.get(key) for key in ("user", "role", "type", "level")}) if found else None


def _profile(profile: Mapping[str, Any] | None, directory: str = "") -> cri.SecurityProfile | None:
    """A profile as the runtime takes it; one of this machine is a file in the directory, or else has a name."""
    if not profile:
        return None
    own = profile.get("localhostProfile")
    return cri.SecurityProfile(
        profile_type=_PROFILES[profile["type"]], localhost_ref=own and posixpath.join(directory, own)
    )


def _ports(pod: Obj) -> list[cri.PortMapping]:
    if uses_host_network(pod):
        return []
    return [
        cri.PortMapping(
            protocol=_PROTOCOLS.get(port.get("protocol", "TCP")),
            container_port=port["containerPort"],
            host_port=port["hostPort"],
            host_ip=port.get("hostIP"),
        )
        for container in _all(pod["spec"])
        for port in container.get("ports") or ()
        if port.get("hostPort")
    ]
