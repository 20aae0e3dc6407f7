"""Tables that are read alike are judged once: the verdicts are those of every device by itself."""

from __future__ import annotations

import random
from typing import Any

import pytest

from haru.engine.dra import NodeView
from haru.engine.dra.model.interning import Interner, decode_slice
from haru.engine.dra.model.model import Features, PlainDevices, Slice
from haru.engine.dra.placement import relevant
from haru.engine.dra.pools.device_table import DeviceTable, DeviceTables
from haru.engine.dra.pools.pools import Pool, PoolView
from haru.engine.dra.selectors.compiled_selectors import Selection, evaluate

Obj = dict[str, Any]
GPU = "gpu.example.com"
OWN = f'device.attributes["{GPU}"]'
EXPRESSIONS = (
    f'{OWN}.model == "H"',
    f"{OWN}.index < 2",
    f'{OWN}.uuid.endsWith("-3")',
    f'"{GPU}" in device.attributes && "spare" in {OWN}',
    f'device.capacity["{GPU}"].memory.compareTo(quantity("50Gi")) > 0',
    f'{OWN}.firmware.isGreaterThan(semver("1.0.0"))',
    f"{OWN}.missing == 1",
    "device.allowMultipleAllocations == true",
    "true",
)
_FACTS = ("consuming", "conditional", "placed", "shareable", "uniform", "plain")


def device(draw: random.Random, node: int, index: int) -> Obj:
    """A device as a driver may publish it; mostly it has attributes and a capacity and nothing else."""
    attributes: Obj = {
        "model": {"string": draw.choice("HHHA")},
        "index": {"int": index},
        "uuid": {"string": f"{node}-{index}"},
    }
    if draw.random() < 0.1:
        attributes[f"{GPU}/spare"] = {"bool": True}
    if draw.random() < 0.05:
        attributes["firmware"] = {"version": draw.choice(["1.2.3", "junk"])}
    made: Obj = {"name": f"d{index}", "attributes": attributes, "capacity": {"memory": {"value": "80Gi"}}}
    odd = draw.random()
    if odd < 0.03:
        made["capacity"]["memory"] = {"value": "40Gi", "requestPolicy": {"default": "1Gi"}}
    elif odd < 0.06:
        made["allowMultipleAllocations"] = True
    elif odd < 0.09:
        made["taints"] = [{"key": "k", "effect": "NoSchedule"}]
    elif odd < 0.12:
        made["bindsToNode"] = True
        made["bindingConditions"] = ["Ready"]
        made["bindingFailureConditions"] = ["Failed"]
    elif odd < 0.15:
        made["consumesCounters"] = [{"counterSet": "c", "counters": {"x": {"value": "1"}}}]
    return made


def slices(seed: int, count: int) -> list[Slice]:
    """Slices of one device each to four, that share what is equal in them."""
    draw, interner = random.Random(seed), Interner()
    found = []
    for node in range(count):
        devices = [device(draw, node, index) for index in range(draw.randint(1, 4))]
        pool = {"name": f"n{node}", "generation": 1, "resourceSliceCount": 1}
        spec: Obj = {"driver": GPU, "nodeName": f"n{node}", "pool": pool, "devices": devices}
        if draw.random() < 0.1:
            del spec["nodeName"]
            spec["perDeviceNodeSelection"] = True
            for each in devices:
                each["nodeName"] = f"n{node}"
        found.append(decode_slice({"metadata": {"name": f"s{node}"}, "spec": spec}, interner))
    return found


def test_plain_device_tables_equal_generic_tables() -> None:
    plain, tables = 0, DeviceTables()
    for item in slices(1, 400):
        known, looked_at = DeviceTable(item.devices, tables), DeviceTable(tuple(item.devices), tables)
        assert {name: getattr(known, name) for name in _FACTS} == {name: getattr(looked_at, name) for name in _FACTS}
        assert isinstance(item.devices, PlainDevices) == (
            looked_at.plain and looked_at.uniform and not looked_at.placed
        )
        plain += isinstance(item.devices, PlainDevices)
    assert 50 < plain < 350, "the slices are of both sorts"


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_column_has_the_result_or_error_of_each_device(expression: str) -> None:
    features = Features()
    flags = features.ListTypeAttributes, features.ConsumableCapacity
    selection = Selection((f'device.driver == "{GPU}"',), (expression,), *flags)
    met, tables = set(), DeviceTables()
    for item in slices(2, 150):
        column = selection.column(PoolView(item.pool, [item], [], True, True, tables))
        assert len(column) == len(item.devices)
        for verdict, one in zip(column, item.devices, strict=True):
            expected = evaluate(expression, one.shape, *flags, tables.cache)
            said = verdict if isinstance(verdict, bool) else verdict.message
            assert said == expected, (expression, one)
            met.add(expected)
    assert met, "some device was judged"


def test_pool_owner_sees_exactly_the_matching_slices() -> None:
    for item in slices(3, 200):
        pool = Pool(item.pool, [item])
        for name in (item.pool.pool, "elsewhere"):
            for partitionable in (True, False):
                node = NodeView(name, {})
                view = pool.view(node, partitionable)
                if name == item.pool.pool and partitionable:
                    ahead = Pool(item.pool, [item])
                    ahead.look_ahead()
                    seen = ahead.view(node, partitionable)
                    assert seen is not None and view is not None and seen is ahead.view(node, partitionable)
                    assert (seen.status, seen.devices, seen.confined) == (view.status, view.devices, view.confined)
                assert (view is not None) == relevant(item, node, partitionable)
                assert view is None or view.devices is item.devices
