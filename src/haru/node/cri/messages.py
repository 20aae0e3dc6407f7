# ruff: noqa: D101 - the classes are the messages of the same names in the CRI
"""The messages of `runtime.v1.RuntimeService` that the agent speaks, as field tables.

Times are nanoseconds since the epoch, timeouts seconds. Source: the published CRI, v1 (the one of Kubernetes 1.36).
"""

from __future__ import annotations

from dataclasses import dataclass

from haru.messages import Message, flag, many, one, table, text, texts, whole, wholes, wrapped

# NamespaceMode
POD, CONTAINER, NODE, TARGET = range(4)
# PodSandboxState
SANDBOX_READY, SANDBOX_NOTREADY = range(2)
# ContainerState
CREATED, RUNNING, EXITED, UNKNOWN = range(4)
# MountPropagation
PRIVATE, HOST_TO_CONTAINER, BIDIRECTIONAL = range(3)
# SecurityProfile.ProfileType
RUNTIME_DEFAULT, UNCONFINED, LOCALHOST = range(3)
# CgroupDriver
SYSTEMD, CGROUPFS = range(2)


@dataclass(slots=True)
class Empty(Message):
    """A message without fields that are looked at."""


# -- the runtime itself -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class VersionRequest(Message):
    version: str = text(1)


@dataclass(slots=True)
class VersionResponse(Message):
    version: str = text(1)
    runtime_name: str = text(2)
    runtime_version: str = text(3)
    runtime_api_version: str = text(4)


@dataclass(slots=True)
class RuntimeCondition(Message):
    type: str = text(1)
    status: bool = flag(2)
    reason: str = text(3)
    message: str = text(4)


@dataclass(slots=True)
class RuntimeStatus(Message):
    conditions: list[RuntimeCondition] = many(1, lambda: RuntimeCondition)


@dataclass(slots=True)
class RuntimeHandlerFeatures(Message):
    recursive_read_only_mounts: bool = flag(1)
    user_namespaces: bool = flag(2)


@dataclass(slots=True)
class RuntimeHandler(Message):
    name: str = text(1)
    features: RuntimeHandlerFeatures | None = one(2, lambda: RuntimeHandlerFeatures)


@dataclass(slots=True)
class RuntimeFeatures(Message):
    supplemental_groups_policy: bool = flag(1)
    user_namespaces_host_network: bool = flag(2)


@dataclass(slots=True)
class StatusRequest(Message):
    verbose: bool = flag(1)


@dataclass(slots=True)
class StatusResponse(Message):
    status: RuntimeStatus | None = one(1, lambda: RuntimeStatus)
    info: dict[str, str] = table(2)
    runtime_handlers: list[RuntimeHandler] = many(3, lambda: RuntimeHandler)
    features: RuntimeFeatures | None = one(4, lambda: RuntimeFeatures)


@dataclass(slots=True)
class LinuxRuntimeConfiguration(Message):
    cgroup_driver: int = whole(1)


@dataclass(slots=True)
class RuntimeConfigResponse(Message):
    linux: LinuxRuntimeConfiguration | None = one(1, lambda: LinuxRuntimeConfiguration)


# -- what sandboxes and containers share ------------------------------------------------------------------------------


@dataclass(slots=True)
class PodSandboxMetadata(Message):
    name: str = text(1)
    uid: str = text(2)
    namespace: str = text(3)
    attempt: int = whole(4)


@dataclass(slots=True)
class DNSConfig(Message):
    servers: list[str] = texts(1)
    searches: list[str] = texts(2)
    options: list[str] = texts(3)


@dataclass(slots=True)
class PortMapping(Message):
    protocol: int = whole(1)
    container_port: int = whole(2)
    host_port: int = whole(3)
    host_ip: str = text(4)


@dataclass(slots=True)
class IDMapping(Message):
    host_id: int = whole(1)
    container_id: int = whole(2)
    length: int = whole(3)


@dataclass(slots=True)
class UserNamespace(Message):
    mode: int = whole(1)
    uids: list[IDMapping] = many(2, lambda: IDMapping)
    gids: list[IDMapping] = many(3, lambda: IDMapping)


@dataclass(slots=True)
class NamespaceOption(Message):
    network: int = whole(1)
    pid: int = whole(2)
    ipc: int = whole(3)
    target_id: str = text(4)
    userns_options: UserNamespace | None = one(5, lambda: UserNamespace)


@dataclass(slots=True)
class SecurityProfile(Message):
    profile_type: int = whole(1)
    localhost_ref: str = text(2)


@dataclass(slots=True)
class SELinuxOption(Message):
    user: str = text(1)
    role: str = text(2)
    type: str = text(3)
    level: str = text(4)


@dataclass(slots=True)
class HugepageLimit(Message):
    page_size: str = text(1)
    limit: int = whole(2)


@dataclass(slots=True)
class LinuxContainerResources(Message):
    cpu_period: int = whole(1)
    cpu_quota: int = whole(2)
    cpu_shares: int = whole(3)
    memory_limit_in_bytes: int = whole(4)
    oom_score_adj: int = whole(5)
    cpuset_cpus: str = text(6)
    cpuset_mems: str = text(7)
    hugepage_limits: list[HugepageLimit] = many(8, lambda: HugepageLimit)
    unified: dict[str, str] = table(9)
    memory_swap_limit_in_bytes: int = whole(10)


# -- sandboxes --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class LinuxSandboxSecurityContext(Message):
    namespace_options: NamespaceOption | None = one(1, lambda: NamespaceOption)
    selinux_options: SELinuxOption | None = one(2, lambda: SELinuxOption)
    run_as_user: int | None = wrapped(3)
    readonly_rootfs: bool = flag(4)
    supplemental_groups: list[int] = wholes(5)
    privileged: bool = flag(6)
    seccomp_profile_path: str = text(7)
    run_as_group: int | None = wrapped(8)
    seccomp: SecurityProfile | None = one(9, lambda: SecurityProfile)
    apparmor: SecurityProfile | None = one(10, lambda: SecurityProfile)
    supplemental_groups_policy: int = whole(11)


@dataclass(slots=True)
class LinuxPodSandboxConfig(Message):
    cgroup_parent: str = text(1)
    security_context: LinuxSandboxSecurityContext | None = one(2, lambda: LinuxSandboxSecurityContext)
    sysctls: dict[str, str] = table(3)
    overhead: LinuxContainerResources | None = one(4, lambda: LinuxContainerResources)
    resources: LinuxContainerResources | None = one(5, lambda: LinuxContainerResources)


@dataclass(slots=True)
class PodSandboxConfig(Message):
    metadata: PodSandboxMetadata | None = one(1, lambda: PodSandboxMetadata)
    hostname: str = text(2)
    log_directory: str = text(3)
    dns_config: DNSConfig | None = one(4, lambda: DNSConfig)
    port_mappings: list[PortMapping] = many(5, lambda: PortMapping)
    labels: dict[str, str] = table(6)
    annotations: dict[str, str] = table(7)
    linux: LinuxPodSandboxConfig | None = one(8, lambda: LinuxPodSandboxConfig)


@dataclass(slots=True)
class RunPodSandboxRequest(Message):
    config: PodSandboxConfig | None = one(1, lambda: PodSandboxConfig)
    runtime_handler: str = text(2)


@dataclass(slots=True)
class PodSandboxId(Message):
    """RunPodSandboxResponse, StopPodSandboxRequest, RemovePodSandboxRequest."""

    pod_sandbox_id: str = text(1)


@dataclass(slots=True)
class PodSandboxStatusRequest(Message):
    pod_sandbox_id: str = text(1)
    verbose: bool = flag(2)


@dataclass(slots=True)
class PodIP(Message):
    ip: str = text(1)


@dataclass(slots=True)
class PodSandboxNetworkStatus(Message):
    ip: str = text(1)
    additional_ips: list[PodIP] = many(2, lambda: PodIP)


@dataclass(slots=True)
class Namespace(Message):
    options: NamespaceOption | None = one(2, lambda: NamespaceOption)


@dataclass(slots=True)
class LinuxPodSandboxStatus(Message):
    namespaces: Namespace | None = one(1, lambda: Namespace)


@dataclass(slots=True)
class PodSandboxStatus(Message):
    id: str = text(1)
    metadata: PodSandboxMetadata | None = one(2, lambda: PodSandboxMetadata)
    state: int = whole(3)
    created_at: int = whole(4)
    network: PodSandboxNetworkStatus | None = one(5, lambda: PodSandboxNetworkStatus)
    linux: LinuxPodSandboxStatus | None = one(6, lambda: LinuxPodSandboxStatus)
    labels: dict[str, str] = table(7)
    annotations: dict[str, str] = table(8)
    runtime_handler: str = text(9)


@dataclass(slots=True)
class PodSandboxStatusResponse(Message):
    status: PodSandboxStatus | None = one(1, lambda: PodSandboxStatus)
    info: dict[str, str] = table(2)


@dataclass(slots=True)
class StateValue(Message):
    """PodSandboxStateValue, ContainerStateValue: a state that is filtered by, zero included."""

    state: int = whole(1)


@dataclass(slots=True)
class PodSandboxFilter(Message):
    id: str = text(1)
    state: StateValue | None = one(2, lambda: StateValue)
    label_selector: dict[str, str] = table(3)


@dataclass(slots=True)
class PodSandbox(Message):
    id: str = text(1)
    metadata: PodSandboxMetadata | None = one(2, lambda: PodSandboxMetadata)
    state: int = whole(3)
    created_at: int = whole(4)
    labels: dict[str, str] = table(5)
    annotations: dict[str, str] = table(6)
    runtime_handler: str = text(7)
