"""The interface to whatever prepares devices, and a node without devices.

A pod's devices are prepared before its first container is made, and given back after its last one ended, before its
status says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from haru.kube.meta import Obj
from haru.kube.pod_claims import FAILED_PREPARE
from haru.proto import cri_pb2 as cri


class DevicesError(Exception):
    """Devices are not ready; the text belongs into the pod's event, and the agent tries again later."""

    def __init__(self, message: str, reason: str = FAILED_PREPARE) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Prepared:
    """By container name: fully qualified CDI device names, and mounts beside what CDI brings."""

    devices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    mounts: Mapping[str, Sequence[cri.Mount]] = field(default_factory=dict)


class Devices(Protocol):
    """Prepares what pods' claims were given."""

    async def prepare(self, pod: Obj) -> Prepared:
        """Have everything ready that the pod's claims hold; the same answer if it is. Raises `DevicesError`."""

    async def unprepare(self, pod_uid: str) -> None:
        """No process of the pod runs any more: give its devices back. May be repeated. Raises `DevicesError`."""

    def status(self, pod: Obj) -> Mapping[str, Sequence[Obj]]:
        """By container name: `allocatedResourcesStatus` of its status; empty where nothing is known."""

    def lines(self) -> Sequence[str]:
        """The lines of /metrics about devices."""


class NoDevices:
    """A node without any: pods with claims can not run on it."""

    async def prepare(self, pod: Obj) -> Prepared:
        """Nothing, for a pod without claims."""
        if pod["spec"].get("resourceClaims"):
            raise DevicesError("this node runs no plugin that could prepare the pod's resource claims")
        return Prepared()

    async def unprepare(self, pod_uid: str) -> None:
        """There is nothing to give back."""

    def status(self, pod: Obj) -> Mapping[str, Sequence[Obj]]:
        """Nothing is known."""
        return {}

    def lines(self) -> Sequence[str]:
        """Nothing is counted."""
        return ()
