# ruff: noqa: D101 - the classes are the messages of the same names in the CRI
"""The messages of `runtime.v1.RuntimeService` about containers, as field tables.

Times are nanoseconds since the epoch, timeouts seconds. Source: the published CRI, v1 (the one of Kubernetes 1.36).
"""

from __future__ import annotations

from dataclasses import dataclass

from haru.messages import Message, flag, many, one, raw, table, text, texts, whole, wholes, wrapped
from haru.node.cri.messages import (
    IDMapping,
    LinuxContainerResources,
    NamespaceOption,
    PodSandboxConfig,
    SecurityProfile,
    SELinuxOption,
    StateValue,
)


@dataclass(slots=True)
class ImageSpec(Message):
    image: str = text(1)
    annotations: dict[str, str] = table(2)
    user_specified_image: str = text(18)
    runtime_handler: str = text(19)
    image_ref: str = text(20)


@dataclass(slots=True)
class ContainerMetadata(Message):
    name: str = text(1)
    attempt: int = whole(2)


@dataclass(slots=True)
class KeyValue(Message):
    key: str = text(1)
    value: bytes = raw(2)


@dataclass(slots=True)
class Mount(Message):
    container_path: str = text(1)
    host_path: str = text(2)
    readonly: bool = flag(3)
    selinux_relabel: bool = flag(4)
    propagation: int = whole(5)
    uid_mappings: list[IDMapping] = many(6, lambda: IDMapping)
    gid_mappings: list[IDMapping] = many(7, lambda: IDMapping)
    recursive_read_only: bool = flag(8)
    image: ImageSpec | None = one(9, lambda: ImageSpec)
    image_sub_path: str = text(10)


@dataclass(slots=True)
class Device(Message):
    container_path: str = text(1)
    host_path: str = text(2)
    permissions: str = text(3)


@dataclass(slots=True)
class CDIDevice(Message):
    name: str = text(1)


@dataclass(slots=True)
class Capability(Message):
    add_capabilities: list[str] = texts(1)
    drop_capabilities: list[str] = texts(2)
    add_ambient_capabilities: list[str] = texts(3)


@dataclass(slots=True)
class LinuxContainerSecurityContext(Message):
    capabilities: Capability | None = one(1, lambda: Capability)
    privileged: bool = flag(2)
    namespace_options: NamespaceOption | None = one(3, lambda: NamespaceOption)
    selinux_options: SELinuxOption | None = one(4, lambda: SELinuxOption)
    run_as_user: int | None = wrapped(5)
    run_as_username: str = text(6)
    readonly_rootfs: bool = flag(7)
    supplemental_groups: list[int] = wholes(8)
    apparmor_profile: str = text(9)
    seccomp_profile_path: str = text(10)
    no_new_privs: bool = flag(11)
    run_as_group: int | None = wrapped(12)
    masked_paths: list[str] = texts(13)
    readonly_paths: list[str] = texts(14)
    seccomp: SecurityProfile | None = one(15, lambda: SecurityProfile)
    apparmor: SecurityProfile | None = one(16, lambda: SecurityProfile)
    supplemental_groups_policy: int = whole(17)


@dataclass(slots=True)
class LinuxContainerConfig(Message):
    resources: LinuxContainerResources | None = one(1, lambda: LinuxContainerResources)
    security_context: LinuxContainerSecurityContext | None = one(2, lambda: LinuxContainerSecurityContext)


@dataclass(slots=True)
class ContainerConfig(Message):
    metadata: ContainerMetadata | None = one(1, lambda: ContainerMetadata)
    image: ImageSpec | None = one(2, lambda: ImageSpec)
    command: list[str] = texts(3)
    args: list[str] = texts(4)
    working_dir: str = text(5)
    envs: list[KeyValue] = many(6, lambda: KeyValue)
    mounts: list[Mount] = many(7, lambda: Mount)
    devices: list[Device] = many(8, lambda: Device)
    labels: dict[str, str] = table(9)
    annotations: dict[str, str] = table(10)
    log_path: str = text(11)
    stdin: bool = flag(12)
    stdin_once: bool = flag(13)
    tty: bool = flag(14)
    linux: LinuxContainerConfig | None = one(15, lambda: LinuxContainerConfig)
    cdi_devices: list[CDIDevice] = many(17, lambda: CDIDevice)
    stop_signal: int = whole(18)


@dataclass(slots=True)
class CreateContainerRequest(Message):
    pod_sandbox_id: str = text(1)
    config: ContainerConfig | None = one(2, lambda: ContainerConfig)
    sandbox_config: PodSandboxConfig | None = one(3, lambda: PodSandboxConfig)


@dataclass(slots=True)
class ContainerId(Message):
    """CreateContainerResponse, StartContainerRequest, RemoveContainerRequest, ReopenContainerLogRequest."""

    container_id: str = text(1)


@dataclass(slots=True)
class StopContainerRequest(Message):
    container_id: str = text(1)
    timeout: int = whole(2)


@dataclass(slots=True)
class ContainerStatusRequest(Message):
    container_id: str = text(1)
    verbose: bool = flag(2)


@dataclass(slots=True)
class ContainerResources(Message):
    linux: LinuxContainerResources | None = one(1, lambda: LinuxContainerResources)


@dataclass(slots=True)
class LinuxContainerUser(Message):
    uid: int = whole(1)
    gid: int = whole(2)
    supplemental_groups: list[int] = wholes(3)


@dataclass(slots=True)
class ContainerUser(Message):
    linux: LinuxContainerUser | None = one(1, lambda: LinuxContainerUser)


@dataclass(slots=True)
class ContainerStatus(Message):
    id: str = text(1)
    metadata: ContainerMetadata | None = one(2, lambda: ContainerMetadata)
    state: int = whole(3)
    created_at: int = whole(4)
    started_at: int = whole(5)
    finished_at: int = whole(6)
    exit_code: int = whole(7)
    image: ImageSpec | None = one(8, lambda: ImageSpec)
    image_ref: str = text(9)
    reason: str = text(10)
    message: str = text(11)
    labels: dict[str, str] = table(12)
    annotations: dict[str, str] = table(13)
    mounts: list[Mount] = many(14, lambda: Mount)
    log_path: str = text(15)
    resources: ContainerResources | None = one(16, lambda: ContainerResources)
    image_id: str = text(17)
    user: ContainerUser | None = one(18, lambda: ContainerUser)


@dataclass(slots=True)
class ContainerStatusResponse(Message):
    status: ContainerStatus | None = one(1, lambda: ContainerStatus)
    info: dict[str, str] = table(2)


@dataclass(slots=True)
class ContainerFilter(Message):
    id: str = text(1)
    state: StateValue | None = one(2, lambda: StateValue)
    pod_sandbox_id: str = text(3)
    label_selector: dict[str, str] = table(4)


@dataclass(slots=True)
class Container(Message):
    id: str = text(1)
    pod_sandbox_id: str = text(2)
    metadata: ContainerMetadata | None = one(3, lambda: ContainerMetadata)
    image: ImageSpec | None = one(4, lambda: ImageSpec)
    image_ref: str = text(5)
    state: int = whole(6)
    created_at: int = whole(7)
    labels: dict[str, str] = table(8)
    annotations: dict[str, str] = table(9)
    image_id: str = text(10)


@dataclass(slots=True)
class UpdateContainerResourcesRequest(Message):
    container_id: str = text(1)
    linux: LinuxContainerResources | None = one(2, lambda: LinuxContainerResources)
    annotations: dict[str, str] = table(4)


@dataclass(slots=True)
class ExecSyncRequest(Message):
    container_id: str = text(1)
    cmd: list[str] = texts(2)
    timeout: int = whole(3)


@dataclass(slots=True)
class ExecSyncResponse(Message):
    stdout: bytes = raw(1)
    stderr: bytes = raw(2)
    exit_code: int = whole(3)


@dataclass(slots=True)
class ExecRequest(Message):
    container_id: str = text(1)
    cmd: list[str] = texts(2)
    tty: bool = flag(3)
    stdin: bool = flag(4)
    stdout: bool = flag(5)
    stderr: bool = flag(6)


@dataclass(slots=True)
class AttachRequest(Message):
    container_id: str = text(1)
    stdin: bool = flag(2)
    tty: bool = flag(3)
    stdout: bool = flag(4)
    stderr: bool = flag(5)


@dataclass(slots=True)
class PortForwardRequest(Message):
    pod_sandbox_id: str = text(1)
    port: list[int] = wholes(2)


@dataclass(slots=True)
class StreamingUrl(Message):
    """ExecResponse, AttachResponse, PortForwardResponse."""

    url: str = text(1)
