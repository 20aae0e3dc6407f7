"""Explanations of nodes and devices as a table: their state, the typed reasons, and required lines."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from engine_objects import (
    DRIVER,
    Obj,
    allocated,
    allocation,
    claim,
    device_class,
    node,
    pod,
    pod_group,
    resource_slice,
)
from explain_schema import check_story

from haru.cli.main import main
from haru.engine import SchedulerCache
from haru.engine.dra import DeviceId
from haru.explain import DeviceStory, NodeStory, explain, explain_device, explain_node
from haru.kube.yaml import dump

CLASS = device_class("gpu", [f'device.driver == "{DRIVER}"'])
CARD = f'device.driver == "{DRIVER}"'


def gpus(count: int, **more: Any) -> list[Obj]:
    return [{"name": f"gpu-{i}", "attributes": {"arch": {"string": "H"}}, **more} for i in range(count)]


def holder(name: str, where: str, *devices: str, **more: Any) -> list[Obj]:
    user = pod(name, node=where, claims=[name], **more)
    user["status"]["startTime"] = "2026-01-01T09:00:00Z"
    return [user, allocated(claim(name, len(devices)), allocation(where, *devices), user)]


def wants(name: str, count: int = 1, expression: str = CARD, group: str = "", **more: Any) -> list[Obj]:
    made = pod(name, group=group, claims=[("gpu", "tmpl", f"{name}-gpu")], **more)
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    asked = [{"name": "gpu", "exactly": {**exactly, "selectors": [{"cel": {"expression": expression}}]}}]
    return [made, claim(f"{name}-gpu", owner=made, requests=asked)]


def cut(where: str) -> list[Obj]:
    """A card that is given out whole or in two halves."""

    def part(name: str, amount: str) -> Obj:
        taken = {"counterSet": "card", "counters": {"memory": {"value": amount}}}
        return {"name": name, "consumesCounters": [taken]}

    devices = [part("whole", "80Gi"), part("half-0", "40Gi"), part("half-1", "40Gi")]
    counters = resource_slice(where, [])
    counters["metadata"]["name"] = f"{where}-counters"
    counters["spec"].pop("devices", None)
    counters["spec"]["sharedCounters"] = [{"name": "card", "counters": {"memory": {"value": "80Gi"}}}]
    found = [counters, resource_slice(where, devices)]
    for item in found:
        item["spec"]["pool"]["resourceSliceCount"] = 2
    return [node(where), *found]


TAINT = [{"key": "bad", "value": "x", "effect": "NoSchedule"}]
NODE_TAINT = {"key": "maintenance", "value": "x", "effect": "NoSchedule"}
RULE: Obj = {
    "apiVersion": "resource.k8s.io/v1beta2",
    "kind": "DeviceTaintRule",
    "metadata": {"name": "broken-fan"},
    "spec": {
        "deviceSelector": {"driver": DRIVER, "pool": "n", "device": "gpu-0"},
        "taint": {"key": "fan", "value": "x", "effect": "NoSchedule"},
    },
}
VOLUMES = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
INCOMPLETE = resource_slice("n", gpus(1))
INCOMPLETE["spec"]["pool"]["resourceSliceCount"] = 2


@dataclass
class Case:
    name: str
    objects: list[Obj]
    state: str
    reasons: list[str]
    lines: tuple[str, ...] = ()
    device: str = ""


NODES = [
    Case("nothing waits", [node("n")], "Open", ["NothingWaits"], ("cpu 8 of 8 free",)),
    Case("nothing that waits would use it", [node("n", cpu="2"), pod("p", cpu="4")], "Open", ["NothingWaits"],
         ("pod/p (1 pod, priority 0): does not fit: insufficient cpu: 4 asked, 2 left",)),
    Case("something would use it", [node("n"), pod("p")], "Open", ["Waiting"],
         ("1 of 1 waiting unit would fit here: pod/p", "would fit: a place is free for it here")),
    Case("a gang would, if others of it had places",
         [CLASS, node("n"), resource_slice("n", gpus(1)), pod_group("g", 2), *wants("g0", group="g"),
          *wants("g1", group="g")], "Open", ["Waiting"],
         ("podgroup/g (2 pods, priority 0): would fit: 1 of the 2 members that it needs have a place at once",)),
    Case("half of it is held", [CLASS, node("n"), resource_slice("n", gpus(2)), *holder("h", "n", "gpu-0", priority=7)],
         "Open", ["DevicesTaken"],
         ("2 devices: 1 held, 1 free", "pod/h 1 (priority 7, since 2026-01-01T09:00:00Z), 1 pod",
          "gpu-0    -         held     pod/h (priority 7", "gpu-1    -         free     -")),
    Case("all of it is held", [CLASS, node("n"), resource_slice("n", gpus(1)), *holder("h", "n", "gpu-0"), *wants("p")],
         "Full", ["DevicesTaken"],
         ("none of 1 waiting unit fits here", "pod/p (1 pod, priority 0): does not fit: request gpu needs 1 device")),
    Case("no cpu is left", [node("n", cpu="1"), pod("o", node="n")], "Full", ["NothingWaits"], ("cpu 0 of 1 free",)),
    Case("cpu strands devices", [CLASS, node("n", cpu="2"), resource_slice("n", gpus(2)), *wants("p", cpu="4"),
                                 *wants("q", cpu="3"), pod("r")],
         "Stranded", ["Stranded"], ("2 devices free, but cpu 2 left: what waits asks for 3",)),
    Case("what waits is refused before nodes are asked", [node("n"), pod("p", volumes=VOLUMES)], "Open",
         ["NothingWaits"], ("none of 1 waiting unit fits here", 'fit: persistentvolumeclaim "data" not found')),
    Case("cordoned", [CLASS, node("n", unschedulable=True), resource_slice("n", gpus(2)), *wants("p")], "Closed",
         ["NodeUnschedulable"], ("it is cordoned; 2 devices: 2 free", "does not fit: were unschedulable")),
    Case("tainted", [node("n", taints=[NODE_TAINT])], "Closed", ["NodeTaints"],
         ("it has the taint maintenance=x:NoSchedule",)),
    Case("a tainted device", [CLASS, node("n"), resource_slice("n", gpus(1, taints=TAINT)), *wants("p")], "Full",
         ["DeviceTainted"], ("1 free device tainted bad=x:NoSchedule",)),
    Case("a card cut in two", [CLASS, *cut("n"), *holder("h", "n", "half-0")], "Open",
         ["DevicesTaken", "CountersExhausted"],
         ("1 device used in part by others, short of card/memory: pod/h 1",
          "whole    -         parts of it taken   pod/h")),
    Case("a pool without all of its slices", [CLASS, node("n"), INCOMPLETE, *wants("p")], "Full", ["PoolIncomplete"],
         ("1 in pools that cannot be used",)),
    Case("a pod on a node that is gone", [pod("p", node="n")], "Absent", ["NodeNameMismatch"], ("1 pod bound to it",)),
    Case("devices of a node that is gone", [CLASS, resource_slice("n", gpus(1))], "Absent", ["NodeNameMismatch"],
         ("1 device published",)),
]  # fmt: skip

DEVICES = [
    Case("free, and nobody asks", [CLASS, node("n"), resource_slice("n", gpus(1))], "Free", ["NothingWaits"],
         ("nothing that waits asks for such a device", 'is       arch "H"'), "gpu-0"),
    Case("free, and others ask for others", [CLASS, node("n"), resource_slice("n", gpus(1)),
                                             *wants("p", expression=f'device.attributes["{DRIVER}"].arch == "A"')],
         "Free", ["NothingWaits"], (), "gpu-0"),
    Case("free, and wanted", [CLASS, node("n"), resource_slice("n", gpus(1)), *wants("p")], "Free", ["Waiting"],
         ("it is free, and pod/p could use it", "would fit: a place is free for it here"), "gpu-0"),
    Case("free, and of no use alone", [CLASS, node("n"), resource_slice("n", gpus(1)), *wants("p", 2)], "Free",
         ["Stranded"], ("does not fit: request gpu needs 2 devices",), "gpu-0"),
    Case("free on a cordoned node", [CLASS, node("n", unschedulable=True), resource_slice("n", gpus(1))], "Free",
         ["NodeUnschedulable"], ("its node n is cordoned",), "gpu-0"),
    Case("free on a tainted node", [CLASS, node("n", taints=[NODE_TAINT]), resource_slice("n", gpus(1))], "Free",
         ["NodeTaints"], ("its node n has the taint maintenance=x:NoSchedule",), "gpu-0"),
    Case("published for a node that is gone", [CLASS, resource_slice("n", gpus(1))], "Free", ["NodeNameMismatch"],
         ("its node n does not exist",), "gpu-0"),
    Case("held", [CLASS, node("n"), resource_slice("n", gpus(1)), *holder("h", "n", "gpu-0", priority=3), *wants("p")],
         "Held", ["Allocated"],
         ("it is held by pod/h (priority 3, since 2026-01-01T09:00:00Z)", "claims   default/h",
          "pod/p (1 pod, priority 0): does not fit: request gpu: the device is taken"), "gpu-0"),
    Case("held by nobody that lives", [CLASS, node("n"), resource_slice("n", gpus(1)),
                                       allocated(claim("c"), allocation("n", "gpu-0"))],
         "Held", ["Allocated"], ("it is held by resourceclaim/c (no pod uses it)",), "gpu-0"),
    Case("tainted by its driver", [CLASS, node("n"), resource_slice("n", gpus(1, taints=TAINT)), *wants("p")],
         "Tainted", ["DeviceTainted"],
         ("taints   bad=x:NoSchedule", "a taint of the device is not tolerated"), "gpu-0"),
    Case("tainted by a rule", [CLASS, node("n"), resource_slice("n", gpus(2)), RULE], "Tainted", ["DeviceTainted"],
         ("taints   fan=x:NoSchedule (DeviceTaintRule broken-fan)",), "gpu-0"),
    Case("a part blocks the whole", [CLASS, *cut("n"), *holder("h", "n", "half-0"), *wants("p")], "Blocked",
         ["CountersExhausted"],
         ("other parts of the same hardware are taken by pod/h", "card/memory: takes 80Gi, 40Gi of 80Gi left: too litt",
          "half-0: held by pod/h", "1 other part of it not held"), "whole"),
    Case("the whole blocks a part", [CLASS, *cut("n"), *holder("h", "n", "whole")], "Blocked", ["CountersExhausted"],
         ("card/memory: takes 40Gi, 0 of 80Gi left",), "half-1"),
    Case("in a pool without all of its slices", [CLASS, node("n"), INCOMPLETE], "Unusable", ["PoolIncomplete"],
         ("slices of pool gpu.example.com/n are missing",), "gpu-0"),
]  # fmt: skip


def story(case: Case) -> NodeStory | DeviceStory:
    snapshot = SchedulerCache.of(case.objects).snapshot()
    if case.device:
        return explain_device(snapshot, DeviceId(DRIVER, "n", case.device))
    return explain_node(snapshot, "n")


@pytest.mark.parametrize("case", [*NODES, *DEVICES], ids=lambda case: case.device + " " * bool(case.device) + case.name)
def test_story_has_expected_state_text_and_json(case: Case) -> None:
    told = story(case)
    state = told.state if isinstance(told, NodeStory) else told.state.status
    text = str(told)
    assert (state, [reason.type for reason in told.reasons]) == (case.state, case.reasons), text
    for line in case.lines:
        assert line in text, f"{line!r} is not in\n{text}"
    assert len(text.splitlines()) <= 16
    answer = told.as_dict()
    check_story(answer)
    json.dumps(answer)
    assert told._repr_html_().startswith("<section")


def test_idle_holder_is_shown_in_device_story() -> None:
    user = pod("h", node="n", claims=["h"])
    held = allocated(claim("h", 2), allocation("n", "gpu-0", "gpu-1"), user)
    held["status"]["devices"] = [
        {"driver": DRIVER, "pool": "n", "device": name, "data": {"haru.dev/utilization-percent": percent}}
        for name, percent in (("gpu-0", 1), ("gpu-1", 90))
    ]
    objects = [CLASS, node("n"), resource_slice("n", gpus(2)), user, held, *wants("p")]
    snapshot = SchedulerCache.of(objects).snapshot()
    waiting = explain(snapshot, "pod", next(o for o in objects if o["metadata"]["name"] == "p"))
    assert "2 taken: pod/h 2 (priority 0, 1 of them idle)" in str(waiting)
    idle, busy = (explain_device(snapshot, DeviceId(DRIVER, "n", name)) for name in ("gpu-0", "gpu-1"))
    assert "it is held by pod/h (priority 0, idle)" in str(idle)
    assert "it is held by pod/h (priority 0)" in str(busy)
    assert [story.as_dict()["device"]["holders"][0]["idle"] for story in (idle, busy)] == [1, 0]


def test_shared_device_story_lists_holders_and_capacity() -> None:
    device = {"name": "nic", "allowMultipleAllocations": True, "capacity": {"bandwidth": {"value": "10"}}}
    given = allocation("n", "nic")
    given["devices"]["results"][0] |= {"shareID": "s1", "consumedCapacity": {"bandwidth": "4"}}
    user = pod("h", node="n", claims=["h"])
    objects = [CLASS, node("n"), resource_slice("n", [device]), user, allocated(claim("h"), given, user)]
    told = explain_device(SchedulerCache.of(objects).snapshot(), DeviceId(DRIVER, "n", "nic"))
    assert (told.state.status, told.state.holders[0].name) == ("Shared", "pod/h")
    assert told.capacity == {"bandwidth": "10"}


def test_missing_object_raises_key_error() -> None:
    snapshot = SchedulerCache.of([node("n")]).snapshot()
    with pytest.raises(KeyError):
        explain_node(snapshot, "elsewhere")
    with pytest.raises(KeyError):
        explain_device(snapshot, DeviceId(DRIVER, "n", "gpu-0"))


def test_waiting_list_is_truncated_at_32() -> None:
    objects = [CLASS, node("n"), resource_slice("n", gpus(1)), *(o for i in range(40) for o in wants(f"p{i:02}"))]
    snapshot = SchedulerCache.of(objects).snapshot()
    for told in (explain_node(snapshot, "n"), explain_device(snapshot, DeviceId(DRIVER, "n", "gpu-0"))):
        assert (len(told.waiting), told.more_waiting) == (32, 8)
        assert "and 32 more" in str(told)


def test_workloads_without_devices_are_not_said_to_hold_any() -> None:
    plain, cards = pod("plain", node="n", priority=3), [CLASS, resource_slice("n", gpus(2))]
    with_holder = [node("n"), *cards, *holder("train", "n", "gpu-0"), plain]
    told = explain_node(SchedulerCache.of(with_holder).snapshot(), "n")
    (held,) = [line for line in told.short().splitlines() if line.startswith("held by")]
    assert held == "held by  pod/train 1 (priority 0, since 2026-01-01T09:00:00Z)"
    assert "pod/plain (priority 3), 1 pod" in str(told)
    told = explain_node(SchedulerCache.of([node("n"), plain]).snapshot(), "n")
    assert told.short().splitlines()[1] == "runs     pod/plain (priority 3)"


@pytest.mark.parametrize("what", ["device/n/gpu-0", "device/gpu.example.com/n/gpu-0", "node/n"])
def test_explain_command_prints_stories(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("---\n".join(map(dump, [CLASS, node("n"), resource_slice("n", gpus(2))])))
    assert main(["explain", what, "-f", str(file), "-o", "json"]) == 0
    check_story(json.loads(capsys.readouterr().out))
    assert main(["explain", what, "--wide", "-f", str(file)]) == 0
    assert "gpu-0" in capsys.readouterr().out
    assert main(["explain", what, "-f", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 5 and lines[-1].startswith(f"more     haru explain {what} -f {file} --wide")


@pytest.mark.parametrize(
    ("what", "hint"),
    [("node/m", 'no node "m"'), ("device/n/gpu-9", "did you mean gpu-"), ("device/m/gpu-0", 'no node or pool "m"')],
)
def test_explain_command_suggests_existing_names(
    what: str, hint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("---\n".join(map(dump, [CLASS, node("n"), resource_slice("n", gpus(2))])))
    assert main(["explain", what, "-f", str(file)]) == 2
    assert hint in capsys.readouterr().err
