"""ResourceSlices and DeviceTaintRules (KEP 4381, 4815, 5055)."""

from __future__ import annotations

from collections.abc import Iterator

from haru.kube.meta import Obj
from haru.lint.findings import Draft, Edit, Rename
from haru.lint.inventory import Inventory, devices_of
from haru.lint.manifests import RESOURCE, Item, Manifests
from haru.lint.published import COMPUTE_DOMAIN, DRIVERS, NVIDIA, STANDARD, STANDARD_DOMAIN

_CLOSED = (NVIDIA, COMPUTE_DOMAIN)
_WORDS = {"model": "productName", "name": "productName", "computeCapability": "cudaComputeCapability"}


def check_slice(item: Item, manifests: Manifests, inventory: Inventory) -> Iterator[Draft]:
    """A slice as its driver would have written it."""
    spec = item.obj.get("spec") or {}
    driver = str(spec.get("driver") or "")
    told: set[str] = set()
    for path, device in devices_of(spec):
        if driver in _CLOSED:
            for table in ("attributes", "capacity"):
                for key in device.get(table) or {}:
                    if key not in told and not _publishes(driver, table, key):
                        told.add(key)
                        yield _unpublished(path, driver, table, key, device)
    yield from _counters(spec, driver, manifests)


def _publishes(driver: str, table: str, key: str) -> bool:
    domain, slash, name = key.partition("/")
    domain, name = (domain, name) if slash else (driver, key)
    if domain == STANDARD_DOMAIN:
        return table == "attributes" and name in STANDARD
    known = DRIVERS[driver].attributes if table == "attributes" else DRIVERS[driver].capacity
    return domain != driver or name in known


def _unpublished(path: str, driver: str, table: str, key: str, device: Obj) -> Draft:
    message = f"{driver} publishes no {'attribute' if table == 'attributes' else 'capacity'} {key}"
    reason = "slices are written by their driver; selectors made for this one would fail on real devices"
    better = _WORDS.get(key, "")
    edits: tuple[Edit, ...] = ()
    if better and better not in (device.get(table) or {}) and table == "attributes":
        edits = (Rename(f"{path}.{table}[{key}]", better),) if better == "productName" else ()
    advice = f"write {better}" if better else ""
    if not better and key.lower().startswith("memory") and table == "attributes":
        advice = "memory is a capacity: capacity: {memory: {value: 80Gi}}"
    return Draft("slice-unpublished", f"{path}.{table}[{key}]", message, reason, advice, edits)


def _counters(spec: Obj, driver: str, manifests: Manifests) -> Iterator[Draft]:
    """References to counter sets, when all slices of the pool are at hand."""
    pool = spec.get("pool") or {}
    identity = (driver, pool.get("name"), pool.get("generation"))
    slices = []
    for other in manifests.all("ResourceSlice"):
        if not other.is_a(RESOURCE, "ResourceSlice"):
            continue
        content = other.obj.get("spec") or {}
        its = content.get("pool") or {}
        if (content.get("driver"), its.get("name"), its.get("generation")) == identity:
            slices.append(content)
    if len(slices) != pool.get("resourceSliceCount"):
        return
    sets = {one.get("name"): set(one.get("counters") or {}) for s in slices for one in s.get("sharedCounters") or ()}
    for path, device in devices_of(spec):
        for index, consumed in enumerate(device.get("consumesCounters") or ()):
            place, name = f"{path}.consumesCounters[{index}]", consumed.get("counterSet")
            reason = "the pool is invalid: none of its devices is ever allocated"
            if name not in sets:
                message = f'the pool has no counter set "{name}"'
                yield Draft(
                    "slice-counters", f"{place}.counterSet", message, reason, f"one of {', '.join(map(str, sets))}"
                )
                continue
            for counter in consumed.get("counters") or {}:
                if counter not in sets[name]:
                    message = f'the counter set {name} has no counter "{counter}"'
                    listed = ", ".join(sorted(sets[name]))
                    yield Draft("slice-counters", f"{place}.counters[{counter}]", message, reason, f"one of {listed}")


def check_taint_rule(item: Item) -> Iterator[Draft]:
    """A rule's selector: absent it matches nothing, empty everything."""
    spec = item.obj.get("spec") or {}
    selector = spec.get("deviceSelector")
    if selector is None:
        message = "without a deviceSelector the rule matches no device"
        yield Draft(
            "taint-rule-selector",
            "spec",
            message,
            "the taint has no effect",
            "deviceSelector with driver, pool, device",
        )
    elif not any(selector.values()):
        effect = (spec.get("taint") or {}).get("effect")
        message = "an empty deviceSelector matches every device of every driver"
        reason = "every pod with devices is evicted" if effect == "NoExecute" else "no device can be allocated any more"
        yield Draft("taint-rule-selector", "spec.deviceSelector", message, reason, "name driver, pool or device")
