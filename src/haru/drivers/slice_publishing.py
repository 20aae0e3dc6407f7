"""How a driver publishes its pool: which slices to write, at which generation, and which to delete.

A change that takes one write keeps the generation. Anything larger raises it and rewrites every slice, so that readers
see the pool as incomplete until all of it has arrived. Obsolete slices go last. What the server fills in (`timeAdded`
of taints) is no difference. Source: k8s.io/dynamic-resource-allocation `resourceslice`, as behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from haru.client.api import ApiClient
from haru.client.informer import Informer
from haru.kube.errors import suppress_status
from haru.kube.meta import Obj, name_of, uid_of

Build = Callable[[int], list[Obj]]
"""The slices that ought to exist, at a given generation."""


@dataclass(frozen=True, slots=True)
class Publication:
    """Writes that bring the stored slices to what they ought to be, in the order create, update, delete."""

    create: tuple[Obj, ...] = ()
    update: tuple[Obj, ...] = ()
    delete: tuple[Obj, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.create or self.update or self.delete)


def plan(stored: Sequence[Obj], build: Build) -> Publication:
    """What to write, given the slices of this driver that are stored for the node."""
    generation = max((_generation(obj) for obj in stored), default=0)
    publication = _difference(stored, build(max(generation, 1)))
    writes = len(publication.create) + len(publication.update) + len(publication.delete)
    if not stored or not writes or (writes == 1 and publication.update):
        return publication
    return _difference(stored, build(generation + 1))


def _generation(obj: Obj) -> int:
    return int(((obj.get("spec") or {}).get("pool") or {}).get("generation") or 0)


def _difference(stored: Sequence[Obj], desired: Sequence[Obj]) -> Publication:
    present = {obj["metadata"]["name"]: obj for obj in stored}
    names = {obj["metadata"]["name"] for obj in desired}
    return Publication(
        create=tuple(obj for obj in desired if obj["metadata"]["name"] not in present),
        update=tuple(
            _replacing(present[name], obj)
            for obj in desired
            if (name := obj["metadata"]["name"]) in present and not is_same(present[name], obj)
        ),
        delete=tuple(obj for name, obj in present.items() if name not in names),
    )


def is_same(stored: Obj, desired: Obj) -> bool:
    """Whether a stored slice says what it ought to, but for what servers fill in."""
    owners = [owner.get("uid") for owner in stored["metadata"].get("ownerReferences") or ()]
    wanted = [owner.get("uid") for owner in desired["metadata"].get("ownerReferences") or ()]
    return owners == wanted and _comparable(stored["spec"]) == _comparable(desired["spec"])


def _comparable(spec: Obj) -> Obj:
    devices = spec.get("devices")
    if not devices:
        return {key: value for key, value in spec.items() if key != "devices"}
    return {**spec, "devices": [_without_times(device) for device in devices]}


def _without_times(device: Obj) -> Obj:
    if "taints" not in device:
        return device
    taints = [{key: value for key, value in taint.items() if key != "timeAdded"} for taint in device["taints"]]
    return {**device, "taints": taints}


def _replacing(stored: Obj, desired: Obj) -> Obj:
    """The desired slice as a successor of the stored one; taints that stay keep the time they were added."""
    times = {
        (device["name"], taint["key"], taint.get("value", ""), taint["effect"]): taint["timeAdded"]
        for device in stored["spec"].get("devices") or ()
        for taint in device.get("taints") or ()
        if "timeAdded" in taint
    }
    spec = desired["spec"]
    if times and "devices" in spec:
        spec = {**spec, "devices": [_with_times(device, times) for device in spec["devices"]]}
    metadata = {**stored["metadata"], "ownerReferences": desired["metadata"].get("ownerReferences") or []}
    return {**desired, "metadata": metadata, "spec": spec}


def _with_times(device: Obj, times: dict[tuple[str, str, str, str], str]) -> Obj:
    if "taints" not in device:
        return device
    taints = []
    for taint in device["taints"]:
        added = times.get((device["name"], taint["key"], taint.get("value", ""), taint["effect"]))
        taints.append({**taint, "timeAdded": added} if added else taint)
    return {**device, "taints": taints}


async def delete_slice(client: ApiClient, slices: Informer, obj: Obj) -> None:
    """Delete a slice, which may be gone by now; the informer knows it when this returns."""
    with suppress_status(404):
        slices.observe_deleted(obj, await client.delete(slices.kind, name_of(obj), uid=uid_of(obj)))
