# ruff: noqa: D101 - the classes are the messages of the same names in the CRI
"""The messages of `runtime.v1.ImageService`, and what the runtime counts, as field tables.

Source: the published CRI, v1 (the one of Kubernetes 1.36).
"""

from __future__ import annotations

from dataclasses import dataclass

from haru.messages import Message, flag, many, one, table, text, texts, whole, wrapped
from haru.node.cri.containers import ContainerMetadata, ImageSpec
from haru.node.cri.messages import PodSandboxConfig, PodSandboxMetadata


@dataclass(slots=True)
class Image(Message):
    id: str = text(1)
    repo_tags: list[str] = texts(2)
    repo_digests: list[str] = texts(3)
    size: int = whole(4)
    uid: int | None = wrapped(5)
    username: str = text(6)
    spec: ImageSpec | None = one(7, lambda: ImageSpec)
    pinned: bool = flag(8)


@dataclass(slots=True)
class ImageFilter(Message):
    image: ImageSpec | None = one(1, lambda: ImageSpec)


@dataclass(slots=True)
class ImageStatusRequest(Message):
    image: ImageSpec | None = one(1, lambda: ImageSpec)
    verbose: bool = flag(2)


@dataclass(slots=True)
class ImageStatusResponse(Message):
    image: Image | None = one(1, lambda: Image)
    info: dict[str, str] = table(2)


@dataclass(slots=True)
class AuthConfig(Message):
    username: str = text(1)
    password: str = text(2)
    auth: str = text(3)
    server_address: str = text(4)
    identity_token: str = text(5)
    registry_token: str = text(6)


@dataclass(slots=True)
class PullImageRequest(Message):
    image: ImageSpec | None = one(1, lambda: ImageSpec)
    auth: AuthConfig | None = one(2, lambda: AuthConfig)
    sandbox_config: PodSandboxConfig | None = one(3, lambda: PodSandboxConfig)


@dataclass(slots=True)
class PullImageResponse(Message):
    image_ref: str = text(1)


@dataclass(slots=True)
class RemoveImageRequest(Message):
    image: ImageSpec | None = one(1, lambda: ImageSpec)


# -- what is counted --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class PodSandboxAttributes(Message):
    id: str = text(1)
    metadata: PodSandboxMetadata | None = one(2, lambda: PodSandboxMetadata)
    labels: dict[str, str] = table(3)
    annotations: dict[str, str] = table(4)


@dataclass(slots=True)
class ContainerAttributes(Message):
    id: str = text(1)
    metadata: ContainerMetadata | None = one(2, lambda: ContainerMetadata)
    labels: dict[str, str] = table(3)
    annotations: dict[str, str] = table(4)


@dataclass(slots=True)
class CpuUsage(Message):
    timestamp: int = whole(1)
    usage_core_nano_seconds: int | None = wrapped(2)
    usage_nano_cores: int | None = wrapped(3)


@dataclass(slots=True)
class MemoryUsage(Message):
    timestamp: int = whole(1)
    working_set_bytes: int | None = wrapped(2)
    available_bytes: int | None = wrapped(3)
    usage_bytes: int | None = wrapped(4)
    rss_bytes: int | None = wrapped(5)
    page_faults: int | None = wrapped(6)
    major_page_faults: int | None = wrapped(7)


@dataclass(slots=True)
class ContainerStats(Message):
    attributes: ContainerAttributes | None = one(1, lambda: ContainerAttributes)
    cpu: CpuUsage | None = one(2, lambda: CpuUsage)
    memory: MemoryUsage | None = one(3, lambda: MemoryUsage)


@dataclass(slots=True)
class ContainerStatsFilter(Message):
    id: str = text(1)
    pod_sandbox_id: str = text(2)
    label_selector: dict[str, str] = table(3)


@dataclass(slots=True)
class LinuxPodSandboxStats(Message):
    cpu: CpuUsage | None = one(1, lambda: CpuUsage)
    memory: MemoryUsage | None = one(2, lambda: MemoryUsage)
    containers: list[ContainerStats] = many(5, lambda: ContainerStats)


@dataclass(slots=True)
class PodSandboxStats(Message):
    attributes: PodSandboxAttributes | None = one(1, lambda: PodSandboxAttributes)
    linux: LinuxPodSandboxStats | None = one(2, lambda: LinuxPodSandboxStats)


@dataclass(slots=True)
class PodSandboxStatsFilter(Message):
    id: str = text(1)
    label_selector: dict[str, str] = table(2)


@dataclass(slots=True)
class Metric(Message):
    name: str = text(1)
    timestamp: int = whole(2)


@dataclass(slots=True)
class ContainerMetrics(Message):
    container_id: str = text(1)
    metrics: list[Metric] = many(2, lambda: Metric)


@dataclass(slots=True)
class PodSandboxMetrics(Message):
    pod_sandbox_id: str = text(1)
    metrics: list[Metric] = many(2, lambda: Metric)
    container_metrics: list[ContainerMetrics] = many(3, lambda: ContainerMetrics)
