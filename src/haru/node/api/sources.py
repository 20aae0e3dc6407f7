"""Interfaces of what the kubelet API serves."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from haru.kube.meta import Obj
from haru.upgrade_proxy import UpgradeResponse


class Pods(Protocol):
    """The pods of the node."""

    def all(self) -> Sequence[Obj]:
        """All that are bound to the node, with their status, as the API has them."""

    def find(self, namespace: str, name: str) -> Obj | None:
        """One of them."""

    async def running(self) -> Sequence[Obj]:
        """What the runtime runs, as pods with names, UIDs and containers' names and images. Raises OSError."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """PodLogOptions. `since` is the first time to be shown; `tail_lines` and `limit_bytes`: None for all."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    since: datetime | None = None
    tail_lines: int | None = None
    limit_bytes: int | None = None
    stream: str = "All"
    """`All`, `Stdout` or `Stderr`."""


class Logs(Protocol):
    """The logs of containers."""

    async def read(self, pod: Obj, container: str, options: LogOptions) -> AsyncGenerator[bytes, None]:
        """A container's log, piece by piece. Raises `HttpError` before the first."""


class Streams(Protocol):
    """Ways into containers. All raise `HttpError`, and OSError where the runtime can not be reached."""

    async def open_exec(self, container: ContainerRef, options: StreamOptions, asked: StreamRequest) -> UpgradeResponse:
        """A command in a container."""

    async def open_attach(
        self, container: ContainerRef, options: StreamOptions, asked: StreamRequest
    ) -> UpgradeResponse:
        """A container's own process."""

    async def open_ports(self, container: ContainerRef, ports: Sequence[int], asked: StreamRequest) -> UpgradeResponse:
        """Ports of a pod."""

    async def run(self, container: ContainerRef, command: Sequence[str]) -> bytes:
        """Run a command to its end and return its output."""

    async def checkpoint(self, container: ContainerRef, seconds: int) -> str:
        """Write a container's state to a file; its path."""


@dataclass(frozen=True, slots=True)
class ContainerRef:
    """A container of a pod that is here; `container` is empty for the pod itself."""

    pod: Obj
    container: str = ""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Which streams there are, and the command."""

    command: Sequence[str] = ()
    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """The request for another protocol, as it is passed on."""

    method: str
    headers: Sequence[tuple[str, str]]


class Statistics(Protocol):
    """What was measured last."""

    def summary(self, only_cpu_and_memory: bool = False) -> Obj:
        """The Summary API's object."""

    def cadvisor(self) -> str:
        """The exposition of /metrics/cadvisor."""

    def resource(self) -> str:
        """The exposition of /metrics/resource."""
