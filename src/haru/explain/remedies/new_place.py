"""Where a pod that has a place would get one if it were made again, and how it is made again."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from haru.engine import Options, Snapshot
from haru.engine.dra import DeviceId
from haru.engine.state import PodInfo
from haru.explain import hypothesis
from haru.explain.changes import create, delete, listed, pod_manifest
from haru.explain.diagnosis.allocations import held_by
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.kube.meta import Obj


class NewPlace(NamedTuple):
    """A node, and the devices that the pod would get there by new allocations."""

    node: str
    devices: tuple[DeviceId, ...]

    @property
    def text(self) -> str:
        """The devices, or the node where there are none."""
        return ", ".join(f"{device.pool}/{device.device}" for device in self.devices) or self.node


def new_place(
    snapshot: Snapshot,
    pod: PodInfo,
    options: Options,
    avoided: Collection[DeviceId] = (),
    users: Sequence[PodInfo] = (),
) -> NewPlace | None:
    """Where the scheduler would place the pod if it were made again; None if nowhere, or with avoided devices only.

    `users` are the pods that are made again with it, because they use its claims too.
    """
    gone = {one.key.path: one for one in (pod, *users)}
    free = hypothesis.without_pods(snapshot, gone)
    again = hypothesis.with_pods(free, [hypothesis.as_pending(one) for one in gone.values()])
    decision = WorkloadUnit((pod.key.path,), pod.group).decision(again, options)
    member = next((m for m in decision.placed if m.pod.path == pod.key.path), None) if decision is not None else None
    if member is None or not member.node:
        return None
    given = tuple(device for one in member.allocations for device in devices_of(one.allocation))
    kept = held_devices(again, again.pods[pod.key.path])
    return None if {*given, *kept} & set(avoided) else NewPlace(member.node, given)


def held_devices(snapshot: Snapshot, pod: PodInfo) -> list[DeviceId]:
    """The devices of a pod's allocated claims, but for those of admin access."""
    return [
        DeviceId(d.driver, d.pool, d.device) for held in held_by(snapshot, pod) for d in held.devices if not d.admin
    ]


def devices_of(allocation: Obj | None) -> Iterator[DeviceId]:
    """The devices of an allocation."""
    for result in ((allocation or {}).get("devices") or {}).get("results") or ():
        yield DeviceId(result["driver"], result["pool"], result["device"])


def made_again(pods: Sequence[PodInfo]) -> tuple[tuple[Obj, ...], str]:
    """How pods are made again, and what that costs: their controllers do it, or whoever deletes them."""
    changes = [delete("v1", "Pod", pod.key.name, pod.key.namespace) for pod in pods]
    changes += [create(pod_manifest(pod.obj)) for pod in pods if pod.controller is None]
    names = listed([pod.key.name for pod in pods])
    makers = {f"{pod.controller['kind'].lower()}/{pod.controller['name']}" for pod in pods if pod.controller}
    by = f"{listed(sorted(makers))} makes" if makers else ""
    what = f"{'pod' if len(pods) == 1 else 'pods'} {names}"
    return tuple(changes), f"{by} {what} again" if by else f"{what} {'is' if len(pods) == 1 else 'are'} made again"
