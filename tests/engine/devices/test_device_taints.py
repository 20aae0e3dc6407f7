"""Tolerations and DeviceTaintRules, against the reference's tables and by hand."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest
from device_objects import NODE, Obj, chosen, claim, class_, device, request, slice_

from haru.engine.dra import AllocatedState, DeviceSnapshot, Features, Inventory, Taint, allocate
from haru.engine.dra.model import decode_fields
from haru.engine.dra.taints import decode_toleration


def reference(name: str) -> list[Obj]:
    root = os.environ.get("HARU_REFERENCE_DATA")
    if not root:
        pytest.skip("HARU_REFERENCE_DATA is not set: the reference's own tables are not here")
    text = (Path(root) / "vectors" / "device-taints" / name).read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_reference_tolerations_agree() -> None:
    for case in reference("tolerations.jsonl"):
        tolerated = decode_toleration(case["toleration"]).tolerates(decode_fields.taint(case["taint"]))
        assert tolerated is case["expect"]["tolerated"], case["name"]


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "key": "k"}, True),
        ({"operator": "Exists", "key": "other"}, False),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k"}, False),
        ({"key": "k", "value": "v", "effect": "NoExecute"}, False),
        ({"operator": "Future", "key": "k", "value": "v"}, False),
    ],
)
def test_toleration_matches_taint_by_operator_and_effect(toleration: Obj, tolerated: bool) -> None:
    taint = decode_fields.taint({"key": "k", "value": "v", "effect": "NoSchedule"})
    assert decode_toleration(toleration).tolerates(taint) is tolerated


def orders(events: list[Obj | list[Obj]]) -> Iterator[list[Obj]]:
    """Every order of the events in which those of a group keep theirs."""
    groups = [event if isinstance(event, list) else [event] for event in events]
    labels = [number for number, group in enumerate(groups) for _ in group]
    for order in sorted(set(permutations(labels))):
        waiting = [iter(group) for group in groups]
        yield [next(waiting[number]) for number in order]


def selecting_all(obj: Obj) -> Obj:
    """The two cases whose rule has no selector mean every device: written as the API has it."""
    if "deviceSelector" in obj["spec"]:
        return obj
    return {**obj, "spec": {**obj["spec"], "deviceSelector": {}}}


Slices = dict[str, tuple[object, tuple[tuple[str, tuple[Taint, ...]], ...]]]
"""Per slice: its pool, and each device with its taints."""


def slices_of(snapshot: DeviceSnapshot) -> Slices:
    every = [item for pool in snapshot.pools.values() for item in pool.slices]
    return {item.name: (item.pool, tuple((d.name, d.taints) for d in item.devices)) for item in every}


def published(objects: list[Obj]) -> Slices:
    return slices_of(DeviceSnapshot.of(objects))


def play(events: list[Obj]) -> tuple[Slices, list[tuple[str, Slices, Slices]]]:
    """The slices after the events, and each change on the way: its type, the slice before and after it."""
    inventory, changes, before = Inventory(), [], Slices()
    handlers = {
        "ResourceSlice": (inventory.upsert_slice, inventory.delete_slice),
        "DeviceTaintRule": (inventory.upsert_taint_rule, inventory.delete_taint_rule),
        "DeviceClass": (inventory.upsert_class, inventory.delete_class),
    }
    for event in events:
        obj, (upsert, delete) = event.get("new") or event["old"], handlers[event["kind"]]
        if event["kind"] == "DeviceTaintRule":
            obj = selecting_all(obj)
        if event["type"] == "delete":
            delete(obj["metadata"]["name"])
        else:
            upsert(obj)
        now = slices_of(inventory.snapshot())
        for name in sorted(before.keys() | now.keys()):
            if before.get(name) != now.get(name):
                old, new = ({name: found[name]} if name in found else {} for found in (before, now))
                changes.append(("update" if old and new else "add" if new else "delete", old, new))
        before = now
    return before, changes


def test_rules_taint_slices_in_every_order_of_events() -> None:
    for case in reference("tracker.jsonl"):
        listed = [e for event in case["events"] for e in (event if isinstance(event, list) else [event])]
        told = case["expect"]["notifications"] or []
        expected = [
            (n["type"], *(published([n[member]] if member in n else []) for member in ("old", "new"))) for n in told
        ]
        assert play(listed)[1] == expected, case["name"]
        for order in orders(case["events"]):
            assert play(order)[0] == published(case["expect"]["slices"] or []), case["name"]


RULE = {
    "metadata": {"name": "rule"},
    "spec": {"deviceSelector": {"device": "gpu-0"}, "taint": {"key": "broken", "effect": "NoSchedule"}},
}


def test_rule_without_selector_taints_no_device() -> None:
    rule = {"metadata": {"name": "r"}, "spec": {"taint": {"key": "k", "effect": "NoSchedule"}}}
    snapshot = DeviceSnapshot.of([slice_("s", [device("gpu-0")])], taint_rules=[rule])
    assert slices_of(snapshot)["s"][1] == (("gpu-0", ()),)


def test_taint_rule_added_and_removed_changes_allocation() -> None:
    inventory = Inventory()
    inventory.upsert_class(class_())

    def picked() -> list[list[str]] | None:
        snapshot = inventory.snapshot()
        claims = [claim("c", request("r"))]
        return chosen(allocate(snapshot, AllocatedState(), NODE, claims, Features(), new_share_id=str))

    inventory.upsert_slice(slice_("s", [device("gpu-0"), device("gpu-1")]))
    before = inventory.snapshot()
    assert picked() == [["gpu-0"]]
    inventory.upsert_taint_rule(RULE)
    assert picked() == [["gpu-1"]]
    inventory.upsert_taint_rule({**RULE, "spec": {**RULE["spec"], "deviceSelector": {"device": "gpu-1"}}})
    assert picked() == [["gpu-0"]]
    inventory.upsert_taint_rule({**RULE, "spec": {**RULE["spec"], "deviceSelector": {"driver": "other"}}})
    assert picked() == [["gpu-0"]]
    inventory.upsert_taint_rule({**RULE, "spec": {**RULE["spec"], "deviceSelector": {}}})
    assert picked() is None
    inventory.delete_taint_rule("rule")
    assert picked() == [["gpu-0"]]
    claims = [claim("c", request("r"))]
    assert chosen(allocate(before, AllocatedState(), NODE, claims, Features(), new_share_id=str)) == [["gpu-0"]]


def test_slice_published_after_rule_is_tainted() -> None:
    snapshot = DeviceSnapshot.of([slice_("s", [device("gpu-0"), device("gpu-1")])], [class_()], [RULE])
    claims = [claim("c", request("r"))]
    assert chosen(allocate(snapshot, AllocatedState(), NODE, claims, Features(), new_share_id=str)) == [["gpu-1"]]
