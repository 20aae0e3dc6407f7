"""From ResourceSlice and DeviceClass objects to the allocator's structures, interning what devices have in common.

Nothing is validated here beyond what is needed to compute: the API server has done that, and what it let through
(or what a test invents) must not bring the scheduler down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from haru.engine.dra.model.decode_fields import node_mappings
from haru.engine.dra.model.interning import Interner
from haru.engine.dra.model.model import DeviceClass, Obj, PoolKey, Slice


def decode_slice(obj: Obj, interner: Interner | None = None) -> Slice:
    """A ResourceSlice as the allocator sees it. Slices decoded with one interner share what is equal in them."""
    interner = Interner() if interner is None else interner
    spec: Obj = obj.get("spec") or {}
    pool: Obj = spec.get("pool") or {}
    driver = interner.value(str(spec.get("driver") or ""))
    per_device = bool(spec.get("perDeviceNodeSelection"))
    return Slice(
        name=str((obj.get("metadata") or {}).get("name") or ""),
        pool=interner.value(PoolKey(driver, interner.value(str(pool.get("name") or "")))),
        generation=int(pool.get("generation") or 0),
        slice_count=int(pool.get("resourceSliceCount") or 0),
        placement=interner.placement(spec),
        per_device=per_device,
        devices=interner.devices(spec.get("devices") or (), driver, per_device),
        counter_sets=interner.counter_sets(spec.get("sharedCounters") or ()),
        mappings=node_mappings(spec.get("devices") or ()),
    )


def expressions(selectors: Iterable[Mapping[str, Any]] | None) -> tuple[str | None, ...]:
    """The CEL expressions of a list of selectors; None stands for a selector of another kind."""
    return tuple((selector.get("cel") or {}).get("expression") for selector in selectors or ())


def decode_class(obj: Obj) -> DeviceClass:
    """A DeviceClass as the allocator sees it."""
    spec: Obj = obj.get("spec") or {}
    name = str((obj.get("metadata") or {}).get("name") or "")
    return DeviceClass(name, expressions(spec.get("selectors")), tuple(spec.get("config") or ()))
