"""The observed state of one pod in the runtime, as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from haru.proto import cri_pb2 as cri

POD_NAME: Final = "io.kubernetes.pod.name"
POD_NAMESPACE: Final = "io.kubernetes.pod.namespace"
POD_UID: Final = "io.kubernetes.pod.uid"
CONTAINER_NAME: Final = "io.kubernetes.container.name"
HASH: Final = "io.kubernetes.container.hash"
RESTART_COUNT: Final = "io.kubernetes.container.restartCount"
MESSAGE_PATH: Final = "io.kubernetes.container.terminationMessagePath"
MESSAGE_POLICY: Final = "io.kubernetes.container.terminationMessagePolicy"
GRACE_PERIOD: Final = "io.kubernetes.pod.terminationGracePeriod"

CREATED: Final = cri.CONTAINER_CREATED
RUNNING: Final = cri.CONTAINER_RUNNING
EXITED: Final = cri.CONTAINER_EXITED
UNKNOWN: Final = cri.CONTAINER_UNKNOWN


@dataclass(frozen=True, slots=True)
class SeenSandbox:
    """A sandbox of a pod. Times are nanoseconds since the epoch."""

    id: str
    attempt: int = 0
    ready: bool = True
    created_at: int = 0
    ips: tuple[str, ...] = ()
    network: int = 0

    @classmethod
    def of(cls, status: cri.PodSandboxStatus) -> SeenSandbox:
        """From what the runtime answers."""
        ips: tuple[str, ...] = ()
        if status.network.ip:
            ips = (status.network.ip, *(more.ip for more in status.network.additional_ips))
        ready, network = status.state == cri.SANDBOX_READY, status.linux.namespaces.options.network
        return cls(status.id, status.metadata.attempt, ready, status.created_at, ips, network)


@dataclass(frozen=True, slots=True)
class SeenImage:
    """The image of a container: as its pod names it, and as the runtime does."""

    name: str = ""
    ref: str = ""


@dataclass(frozen=True, slots=True)
class ContainerFiles:
    """Paths on this machine: the log of a container, and the file for its termination message."""

    log: str = ""
    termination_message: str = ""


@dataclass(frozen=True, slots=True)
class SeenContainer:
    """One start of a container of a pod. Times are nanoseconds since the epoch."""

    id: str
    name: str
    attempt: int = 0
    state: int = RUNNING
    created_at: int = 0
    started_at: int = 0
    finished_at: int = 0
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    image: SeenImage = field(default_factory=lambda: SeenImage())
    sandbox: str = ""
    user: Mapping[str, Any] | None = None
    files: ContainerFiles = field(default_factory=lambda: ContainerFiles())
    annotations: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, status: cri.ContainerStatus, sandbox: str = "") -> SeenContainer:
        """From what the runtime answers."""
        noted = dict(status.annotations)
        count = noted.get(RESTART_COUNT, "")
        where = noted.get(MESSAGE_PATH, "")
        user = None
        if status.user.HasField("linux"):
            linux = status.user.linux
            user = {"uid": linux.uid, "gid": linux.gid, "supplementalGroups": list(linux.supplemental_groups)}
        return cls(
            id=status.id,
            name=status.labels.get(CONTAINER_NAME, ""),
            attempt=int(count) if count.isdigit() else status.metadata.attempt,
            state=status.state,
            created_at=status.created_at,
            started_at=status.started_at,
            finished_at=status.finished_at,
            exit_code=status.exit_code,
            reason=status.reason,
            message=status.message,
            image=SeenImage(status.image.user_specified_image or status.image.image, status.image_ref),
            sandbox=sandbox,
            user=user,
            files=ContainerFiles(
                status.log_path, next((one.host_path for one in status.mounts if one.container_path == where), "")
            ),
            annotations=noted,
        )

    @property
    def hash(self) -> str:
        """The hash of the definition that it was made from; empty if it was not noted."""
        return self.annotations.get(HASH, "")

    @property
    def runs(self) -> bool:
        """Whether its process is there."""
        return self.state == RUNNING


@dataclass(frozen=True, slots=True)
class SeenPod:
    """Sandboxes and containers of one pod, the newest first."""

    sandboxes: tuple[SeenSandbox, ...] = ()
    containers: tuple[SeenContainer, ...] = ()

    @classmethod
    def of(cls, sandboxes: Iterable[SeenSandbox], containers: Iterable[SeenContainer]) -> SeenPod:
        """In order of age."""
        return cls(
            tuple(sorted(sandboxes, key=lambda one: (one.attempt, one.created_at), reverse=True)),
            tuple(sorted(containers, key=lambda one: (one.attempt, one.created_at), reverse=True)),
        )

    @property
    def sandbox(self) -> SeenSandbox | None:
        """The newest sandbox."""
        return self.sandboxes[0] if self.sandboxes else None

    @property
    def runs(self) -> bool:
        """Whether a process of the pod is there, its sandbox aside."""
        return any(container.state in (RUNNING, UNKNOWN) for container in self.containers)

    def history(self, name: str) -> tuple[SeenContainer, ...]:
        """All starts of a container, the newest first."""
        return tuple(container for container in self.containers if container.name == name)

    def newest(self, name: str) -> SeenContainer | None:
        """The last start of a container."""
        return next(iter(self.history(name)), None)
