"""Tolerations, taint rules and the tracker, against the reference's tables and by hand."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest
from device_objects import NODE, Obj, chosen, claim, class_, device, request, slice_

from haru.engine.dra import AllocatedState, DeviceSnapshot, Features, Inventory, TaintTracker, allocate
from haru.engine.dra.model import decode_fields
from haru.engine.dra.taints import decode_toleration


def reference(name: str) -> list[Obj]:
    root = os.environ.get("HARU_REFERENCE_DATA")
    if not root:
        pytest.skip("HARU_REFERENCE_DATA is not set: the reference's own tables are not here")
    text = (Path(root) / "vectors" / "device-taints" / name).read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_tolerations() -> None:
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
def test_toleration_of_one_taint(toleration: Obj, tolerated: bool) -> None:
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


def play(events: list[Obj]) -> tuple[TaintTracker, list[Obj]]:
    tracker, heard = TaintTracker(), []
    for event in events:
        obj = event.get("new") or event["old"]
        if event["kind"] == "DeviceTaintRule":
            obj = selecting_all(obj)
        if event["type"] == "delete":
            changes = tracker.remove(event["kind"], obj["metadata"]["name"])
        else:
            changes = tracker.apply(event["kind"], obj)
        heard += [{k: v for k, v in (("type", c.type), ("old", c.old), ("new", c.new)) if v} for c in changes]
    return tracker, heard


def test_tracker() -> None:
    for case in reference("tracker.jsonl"):
        listed = [e for event in case["events"] for e in (event if isinstance(event, list) else [event])]
        assert play(listed)[1] == case["expect"]["notifications"], case["name"]
        for order in orders(case["events"]):
            expected = sorted(case["expect"]["slices"] or [], key=lambda s: s["metadata"]["name"])
            assert play(order)[0].slices == expected, case["name"]


RULE = {
    "metadata": {"name": "rule"},
    "spec": {"deviceSelector": {"device": "gpu-0"}, "taint": {"key": "broken", "effect": "NoSchedule"}},
}


def test_rule_without_selector_means_no_device() -> None:
    tracker = TaintTracker()
    tracker.apply("ResourceSlice", slice_("s", [device("gpu-0")]))
    assert tracker.apply("DeviceTaintRule", {"metadata": {"name": "r"}, "spec": {"taint": {"key": "k"}}}) == []


def test_rule_comes_and_goes_in_the_inventory() -> None:
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


def test_slices_published_after_the_rule_are_tainted_too() -> None:
    snapshot = DeviceSnapshot.of([slice_("s", [device("gpu-0"), device("gpu-1")])], [class_()], [RULE])
    claims = [claim("c", request("r"))]
    assert chosen(allocate(snapshot, AllocatedState(), NODE, claims, Features(), new_share_id=str)) == [["gpu-1"]]
