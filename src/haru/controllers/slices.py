"""What the controllers keep of a ResourceSlice (pure).

A cluster can have hundreds of thousands of devices, and no controller reads their attributes: of a slice its pool and
node are kept, of a device its name, taints and what it takes from shared counters. Equal lists are kept once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import orjson

from haru.kube.meta import Obj

_REMEMBERED = 1024
_OF_DEVICE = ("name", "taints", "consumesCounters")
_OF_SPEC = ("driver", "pool", "nodeName")


def kept_part(resource_slice: Obj) -> Obj:
    """The slice without all that no controller asks for; nothing that was given is changed."""
    spec, metadata = resource_slice["spec"], resource_slice["metadata"]
    kept: Obj = {name: spec[name] for name in _OF_SPEC if name in spec}
    kept["devices"] = _devices(spec.get("devices") or ())
    if spec.get("sharedCounters"):
        kept["sharedCounters"] = _parsed(orjson.dumps(spec["sharedCounters"]))
    return {
        "apiVersion": resource_slice["apiVersion"],
        "kind": resource_slice["kind"],
        "metadata": {name: value for name, value in metadata.items() if name != "managedFields"},
        "spec": kept,
    }


def _devices(devices: Any) -> list[Obj]:
    tainted = any("taints" in device for device in devices)
    if not tainted and not any("consumesCounters" in device for device in devices):
        return _names(tuple([device["name"] for device in devices]))
    kept = [{name: device[name] for name in _OF_DEVICE if name in device} for device in devices]
    # Times of taints differ from slice to slice, while nodes of one model take the same from the same counters.
    return kept if tainted else _parsed(orjson.dumps(kept))


@lru_cache(maxsize=_REMEMBERED)
def _names(names: tuple[str, ...]) -> list[Obj]:
    return [{"name": name} for name in names]


@lru_cache(maxsize=_REMEMBERED)
def _parsed(text: bytes) -> list[Obj]:
    parsed: list[Obj] = orjson.loads(text)
    return parsed
