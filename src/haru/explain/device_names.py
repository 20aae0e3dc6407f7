"""Which device a person means by NODE/DEVICE, and what to say when there is none, or more than one.

A device is named by its node, its pool, or driver and pool, then a slash and its own name; names of pools may have
slashes in them. Only what the newest generation of a pool publishes counts.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping

from haru.engine.dra import (
    AllocationError,
    Device,
    DeviceId,
    DeviceSnapshot,
    NodeView,
    Placement,
    Slice,
    decode_taint_rule,
    matches_node,
)
from haru.explain.changes import listed
from haru.kube.meta import Obj, labels_of, name_of

Published = tuple[DeviceId, Slice, Device]


class DeviceNameError(ValueError):
    """A text names no device, or several; says which there are."""


def find_device(text: str, slices: Iterable[Obj], nodes: Iterable[Obj] = ()) -> DeviceId:
    """The one device of these ResourceSlices that `text` names; DeviceNameError says what was meant perhaps."""
    return find_in(text, DeviceSnapshot.of(slices), {name_of(node): labels_of(node) for node in nodes})


def find_in(text: str, devices: DeviceSnapshot, known: Mapping[str, Mapping[str, str]]) -> DeviceId:
    """The same in an inventory; `known` are the labels of the nodes."""
    where, name = split_name(text)
    published = list(_published(devices))
    named = {_placement(item, device).node_name for _, item, device in published}
    view = NodeView(where, known.get(where, {})) if where in known or where in named else None
    there = list(
        dict.fromkeys(i for i, item, device in published if _is_there(i, _placement(item, device), where, view))
    )
    found = [device for device in there if device.device == name]
    if len(found) == 1:
        return found[0]
    if found:
        raise DeviceNameError(f'"{text}" may be any of {listed([str(i) for i in found])}: write one of them')
    if there:
        raise DeviceNameError(_no_device(where, name, [device.device for device in there]))
    raise DeviceNameError(_no_place(where, known, published))


def find_ruled_device(text: str, rules: Iterable[Obj]) -> DeviceId | None:
    """The device that DeviceTaintRules select by POOL/DEVICE or DRIVER/POOL/DEVICE, published or not; None: no one."""
    where, name = split_name(text)
    found = set()
    for rule in rules:
        device = decode_taint_rule(rule).named_device
        if device is not None and device.device == name and where in (device.pool, f"{device.driver}/{device.pool}"):
            found.add(device)
    return found.pop() if len(found) == 1 else None


def split_name(text: str) -> tuple[str, str]:
    """Where a device is, and its name; DeviceNameError if either is missing."""
    where, _, name = text.rpartition("/")
    if not where or not name:
        raise DeviceNameError(f'"{text}": write NODE/DEVICE or POOL/DEVICE, for example dgx-h100-0/gpu-3')
    return where, name


def published_devices(slices: Iterable[Obj]) -> Iterator[Published]:
    """Every device of the newest generation of its pool, with its slice."""
    return _published(DeviceSnapshot.of(slices))


def _published(devices: DeviceSnapshot) -> Iterator[Published]:
    for pool in devices.pools.values():
        newest = max(item.generation for item in pool.slices)
        for item in pool.slices:
            if item.generation == newest:
                for device in item.devices:
                    yield DeviceId(pool.key.driver, pool.key.pool, device.name), item, device


def _placement(item: Slice, device: Device) -> Placement:
    return device.placement if device.placement is not None else item.placement


def _is_there(device: DeviceId, placement: Placement, where: str, node: NodeView | None) -> bool:
    """Whether a device is of the pool `where`, or can be used on the node, if `where` is one."""
    if where in (device.pool, f"{device.driver}/{device.pool}"):
        return True
    try:
        return node is not None and matches_node(placement, node)
    except AllocationError:  # a selector that nobody understands puts the device on no node
        return False


def _no_device(where: str, name: str, there: list[str]) -> str:
    close = difflib.get_close_matches(name, there, 1)
    hint = f"did you mean {close[0]}?" if close else f"it has {listed(there)}"
    return f'{where} has no device "{name}"; {hint}'


def _no_place(where: str, nodes: Mapping[str, object], published: list[Published]) -> str:
    places = list(dict.fromkeys(item.placement.node_name or device.pool for device, item, _ in published))
    if not places:
        return "no driver publishes devices here"
    if where in nodes:
        return f"node {where} has no devices; {listed(places)} {'has' if len(places) == 1 else 'have'}"
    close = difflib.get_close_matches(where, [*places, *nodes, *(i.pool for i, _, _ in published)], 1)
    hint = f"did you mean {close[0]}?" if close else f"devices are on {listed(places)}"
    return f'there is no node or pool "{where}"; {hint}'
