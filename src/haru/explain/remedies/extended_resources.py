"""An extended resource that no node has and no DeviceClass provides: a class that provides it from devices there are.

Source: KEP-5004, field extendedResourceName; the names of resources of NVIDIA's device plugin, as facts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from haru.engine import Options, Reason, Snapshot
from haru.engine.dra import PoolKey
from haru.explain import hypothesis
from haru.explain.changes import create, patch
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.explain.explanation import Remedy
from haru.explain.remedies.near_names import resources_nobody_offers
from haru.kube.meta import Obj

_VERSION = "resource.k8s.io/v1"
_PARTITION = "mig-"


def providing_classes(
    snapshot: Snapshot, work: WorkloadUnit, options: Options, reasons: Sequence[Reason]
) -> Iterator[Remedy]:
    """The class of the driver's name provides the resource, or a new one for partitions of a profile."""
    for resource in resources_nobody_offers(snapshot, reasons):
        domain, _, own = resource.partition("/")
        known = snapshot.objects("DeviceClass").get(f"{own}.{domain}")
        if not any(key.driver.endswith(f".{domain}") for key in _pools(snapshot)):
            continue
        if known is not None and not known["spec"].get("extendedResourceName"):
            yield _tried(snapshot, work, options, resource, known)
        elif own.startswith(_PARTITION) and known is None:
            profile = own.removeprefix(_PARTITION)
            for driver in _drivers_with(snapshot, domain, profile):
                yield _tried(snapshot, work, options, resource, _class_of(f"{own}.{domain}", driver, profile))


def _tried(snapshot: Snapshot, work: WorkloadUnit, options: Options, resource: str, known: Obj) -> Remedy:
    name, is_new = known["metadata"]["name"], known["metadata"]["name"] not in snapshot.objects("DeviceClass")
    provides = {**known, "spec": {**known["spec"], "extendedResourceName": resource}}
    fits = work.fits(hypothesis.with_device_class(snapshot, provides), options)
    change = patch(_VERSION, "DeviceClass", name, {"spec": {"extendedResourceName": resource}})
    text = (
        f"create DeviceClass {name} that provides {resource}"
        if is_new
        else f"let DeviceClass {name} provide {resource}"
    )
    costs = f"whoever asks for {resource} gets devices of DeviceClass {name}"
    costs = costs if fits else f"{costs}; it would then wait for something else"
    return Remedy("ProvideResource", text, (create(provides) if is_new else change,), 1, fits, costs)


def _pools(snapshot: Snapshot) -> Iterator[PoolKey]:
    return (pool.key for pool in snapshot.devices.pools.values())


def _drivers_with(snapshot: Snapshot, domain: str, profile: str) -> list[str]:
    """The drivers of a vendor's domain that publish devices of a profile."""
    pools = snapshot.devices.pools.values()
    shapes = {id(device.shape): device.shape for pool in pools for item in pool.slices for device in item.devices}
    return sorted(
        {
            shape.driver
            for shape in shapes.values()
            if shape.driver.endswith(f".{domain}")
            and any(name.rpartition("/")[2] == "profile" and one.value == profile for name, one in shape.attributes)
        }
    )


def _class_of(name: str, driver: str, profile: str) -> Obj:
    own = f"device.attributes['{driver}']"
    expression = f"device.driver == '{driver}' && 'profile' in {own} && {own}.profile == '{profile}'"
    selectors = [{"cel": {"expression": expression}}]
    return {"apiVersion": _VERSION, "kind": "DeviceClass", "metadata": {"name": name}, "spec": {"selectors": selectors}}
