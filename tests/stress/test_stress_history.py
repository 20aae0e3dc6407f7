"""What the history of a run finds broken: each promise by the events that break it, and by those that do not."""

from __future__ import annotations

from typing import Any

import pytest

from haru.stress.devices import DeviceBook
from haru.stress.feasibility import fits, usable_nodes
from haru.stress.history import History, Rules
from haru.stress.manifests import RUN_LABEL, UNIT_LABEL
from haru.stress.plan import WorkloadUnit
from haru.stress.queue import WaitingWorks

Obj = dict[str, Any]


def node(name: str = "n", cpu: str = "4", **more: Any) -> Obj:
    status = {
        "allocatable": {"cpu": cpu, "memory": "16Gi", "pods": "10"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return {"metadata": {"name": name, "labels": {"own": "yes"}}, "spec": more, "status": status}


def pod(
    name: str, where: str = "", *, group: str = "", phase: str = "Pending", unit: str = "u", cpu: str = "1", **meta: Any
) -> Obj:
    labels = {RUN_LABEL: "r", UNIT_LABEL: unit}
    spec: Obj = {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
    if where:
        spec["nodeName"] = where
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    metadata = {"name": name, "namespace": "s", "uid": f"uid-{name}", "labels": labels, **meta}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


def claim(name: str, *devices: str, pool: str = "n", **result: Any) -> Obj:
    results = [{"request": "r", "driver": "d", "pool": pool, "device": device, **result} for device in devices]
    status = {"allocation": {"devices": {"results": results}}} if devices else {}
    return {"metadata": {"name": name, "namespace": "s", "uid": f"uid-{name}"}, "status": status}


def group(name: str, min_count: int) -> Obj:
    spec = {"schedulingPolicy": {"gang": {"minCount": min_count}}}
    return {"metadata": {"name": name, "namespace": "s", "uid": f"uid-{name}"}, "spec": spec}


def slice_of(*devices: Obj, counters: Obj | None = None, generation: int = 1) -> Obj:
    pool = {"name": "n", "generation": generation}
    spec: Obj = {"driver": "d", "nodeName": "n", "pool": pool, "devices": list(devices)}
    if counters:
        spec["sharedCounters"] = [{"name": "set", "counters": counters}]
    return {"metadata": {"name": f"s{generation}"}, "spec": spec}


def broken(history: History) -> list[str]:
    return [one.promise for one in history.broken]


# -- gangs ------------------------------------------------------------------------------------------------------------


def half_gang(*, min_count: int = 3, bound: int = 2) -> History:
    history = History("r", Rules(gang=10))
    history.group_changed(None, group("g", min_count), 0)
    for number in range(3):
        member = pod(f"p{number}", group="g")
        history.pod_changed(None, member, 0)
        if number < bound:
            history.pod_changed(member, pod(f"p{number}", "n", group="g"), 1)
    return history


def test_gang_bound_in_part_beyond_the_grace_is_half_once() -> None:
    history = half_gang()
    history.tick(10.5)
    assert broken(history) == []
    history.tick(12)
    history.tick(30)
    assert broken(history) == ["HalfGang"]
    assert "gang s/g: 2 members are bound for 11 s, its minCount is 3" in history.broken[0].message


def test_gang_completed_within_the_grace_is_whole() -> None:
    history = half_gang()
    history.pod_changed(pod("p2", group="g"), pod("p2", "n", group="g"), 9)
    history.tick(100)
    assert broken(history) == [] and history.gangs_scheduled == {"s/g": 9}


def test_gang_hit_from_outside_is_excused_until_none_of_it_is_bound() -> None:
    history = half_gang(bound=3)
    bound = pod("p0", "n", group="g")
    history.deleting("u")
    history.pod_changed(bound, None, 2)
    history.tick(100)
    assert broken(history) == []
    for name in ("p1", "p2"):
        history.pod_changed(pod(name, "n", group="g"), None, 101)
    history.pod_changed(None, pod("new", "n", group="g"), 102)
    history.tick(200)
    assert broken(history) == ["HalfGang"]


def test_grace_starts_anew_after_an_outage() -> None:
    history = half_gang()
    history.resume(50)
    history.tick(55)
    assert broken(history) == []
    history.tick(61)
    assert broken(history) == ["HalfGang"]


# -- devices ----------------------------------------------------------------------------------------------------------


def test_device_held_twice_for_one_revision_is_found() -> None:
    history = History("r")
    history.claim_changed(None, claim("a", "gpu-0"), 1)
    history.claim_changed(None, claim("b", "gpu-0"), 2)
    history.claim_changed(claim("b", "gpu-0"), claim("b"), 2.1)
    assert broken(history) == ["DeviceHeldTwice"]
    assert history.broken[0].message == "device d/n/gpu-0 is held 2 times: by s/a, s/b"


def test_device_given_back_is_held_by_the_next() -> None:
    history = History("r")
    history.claim_changed(None, claim("a", "gpu-0"), 1)
    history.claim_changed(claim("a", "gpu-0"), None, 2)
    history.claim_changed(None, claim("b", "gpu-0"), 3)
    assert broken(history) == [] and history.devices.held() == 1


def test_admin_access_holds_nothing() -> None:
    history = History("r")
    history.claim_changed(None, claim("a", "gpu-0"), 1)
    history.claim_changed(None, claim("b", "gpu-0", adminAccess=True), 2)
    assert broken(history) == []


@pytest.mark.parametrize(("amount", "found"), [("40Gi", 0), ("41Gi", 1)])
def test_consumed_capacity_stays_within_what_a_shared_device_has(amount: str, found: int) -> None:
    book = DeviceBook()
    device = {"name": "gpu-0", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "80Gi"}}}
    book.slice_changed("s1", slice_of(device))
    first = claim("a", "gpu-0", shareID="1", consumedCapacity={"memory": "40Gi"})
    second = claim("b", "gpu-0", shareID="2", consumedCapacity={"memory": amount})
    assert book.claim_changed("s/a", first) == []
    assert len(book.claim_changed("s/b", second)) == found


def test_counters_of_the_newest_generation_are_not_overdrawn() -> None:
    book = DeviceBook()

    def part(name: str) -> Obj:
        return {"name": name, "consumesCounters": [{"counterSet": "set", "counters": {"memory": {"value": "40Gi"}}}]}

    book.slice_changed("s1", slice_of(part("a"), part("b"), part("c"), counters={"memory": {"value": "120Gi"}}))
    book.slice_changed(
        "s2", slice_of(part("a"), part("b"), part("c"), counters={"memory": {"value": "80Gi"}}, generation=2)
    )
    assert book.claim_changed("s/1", claim("1", "a")) == []
    assert book.claim_changed("s/2", claim("2", "b")) == []
    assert book.claim_changed("s/3", claim("3", "c")) == ["counter set d/n/set: 120Gi of 80Gi memory are held"]


# -- nodes and pods ---------------------------------------------------------------------------------------------------


def test_overcommitted_node_is_found_after_both_watches_had_time() -> None:
    history = History("r")
    history.node_changed(None, node(cpu="2"), 0)
    for number in range(3):
        history.pod_changed(None, pod(f"p{number}", "n"), number)
    history.tick(3)
    assert broken(history) == []
    history.tick(5)
    history.tick(9)
    assert broken(history) == ["NodeOvercommitted"]
    assert history.broken[0].message == "node n: pods ask for 3000m cpu, it has 2000m"


def test_node_that_grew_before_the_pod_came_is_not_overcommitted() -> None:
    history = History("r")
    history.node_changed(None, node(cpu="1"), 0)
    for number in range(2):
        history.pod_changed(None, pod(f"p{number}", "n"), 1)
    history.node_changed(node(cpu="1"), node(cpu="2"), 1.5)
    history.tick(10)
    assert broken(history) == []


def test_ended_pod_makes_room() -> None:
    history = History("r")
    history.node_changed(None, node(cpu="1"), 0)
    history.pod_changed(None, pod("p0", "n"), 1)
    history.pod_changed(pod("p0", "n"), pod("p0", "n", phase="Succeeded"), 2)
    history.pod_changed(None, pod("p1", "n"), 3)
    history.tick(10)
    assert broken(history) == []


def test_pod_that_vanishes_is_lost_and_one_that_was_evicted_is_preempted() -> None:
    history = History("r")
    history.pod_changed(None, pod("p0", "n"), 1)
    history.pod_changed(pod("p0", "n"), None, 2)
    assert broken(history) == ["PodLost"]
    evicted = pod("p1", "n", unit="v")
    evicted["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True"}]
    history.pod_changed(None, evicted, 3)
    history.pod_changed(evicted, None, 4)
    assert broken(history) == ["PodLost"] and history.preempted == {"v"}


def test_pod_that_a_node_rejects_is_lost() -> None:
    history = History("r")
    rejected = pod("p0", "n", phase="Failed")
    rejected["status"] |= {"reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}
    history.pod_changed(pod("p0", "n"), rejected, 1)
    assert broken(history) == ["PodLost"] and "OutOfcpu" in history.broken[0].message


def test_bound_pod_that_does_not_run_is_stuck_only_on_a_ready_node() -> None:
    history = History("r", Rules(start=20))
    unready = node()
    unready["status"]["conditions"][0]["status"] = "Unknown"
    history.node_changed(None, unready, 0)
    history.pod_changed(None, pod("p0", "n"), 1)
    history.tick(30)
    assert broken(history) == []
    history.node_changed(unready, node(), 30)
    history.tick(31)
    assert broken(history) == ["PodStuck"]


def test_times_of_a_pod_are_those_of_its_first_events() -> None:
    history = History("r")
    history.creating("u", ["s/p0"], 1)
    history.pod_changed(None, pod("p0"), 1.5)
    history.pod_changed(pod("p0"), pod("p0", "n"), 2)
    history.pod_changed(pod("p0", "n"), pod("p0", "n", phase="Running"), 3)
    record = history.pods["s/p0"]
    assert (record.created, record.scheduled, record.running) == (1, 2, 3)


# -- the queue --------------------------------------------------------------------------------------------------------


def unit(
    name: str, *, kind: Any = "claim", pods: int = 2, cpu: int = 1000, devices: int = 1, important: bool = False
) -> WorkloadUnit:
    min_count = pods if kind == "gang" else 1
    return WorkloadUnit(name, kind, 0, pods, min_count, cpu, 64, devices, 10, important=important)


def test_first_of_the_queue_that_fits_and_is_not_scheduled_is_stuck() -> None:
    history = History("r", Rules(fit=30))
    queue = WaitingWorks(history)
    queue.created(unit("a"), 0)
    queue.tick(1, lambda one, needed: needed == 2)
    queue.tick(20, lambda one, needed: False)
    queue.tick(21, lambda one, needed: True)
    queue.tick(50, lambda one, needed: True)
    assert broken(history) == []
    queue.tick(52, lambda one, needed: True)
    assert broken(history) == ["PodStuck"]


def test_only_the_most_important_and_oldest_is_the_first_of_the_queue() -> None:
    history = History("r", Rules(fit=30))
    queue = WaitingWorks(history)
    for number, name in enumerate("abc"):
        queue.created(unit(name, important=name == "b"), number)
    asked: list[str] = []
    queue.tick(5, lambda one, needed: asked.append(one.name) or False)  # type: ignore[func-returns-value]
    assert asked == ["b"]


@pytest.mark.parametrize(("devices", "found"), [(1, ["Starvation"]), (4, [])])
def test_work_is_starved_by_younger_ones_that_ask_for_no_less(devices: int, found: list[str]) -> None:
    history = History("r", Rules(starvation=60))
    queue = WaitingWorks(history)
    queue.created(unit("old", devices=devices), 0)
    queue.created(unit("young", devices=2), 10)
    history.scheduled["young"] = {"s/1", "s/2"}
    queue.tick(70, lambda one, needed: False)
    assert broken(history) == found


@pytest.mark.parametrize(
    ("asked", "needed", "expected"),
    [
        (unit("a"), 3, True),
        (unit("a"), 4, False),
        (unit("a", cpu=2000), 2, True),
        (unit("a", cpu=2000), 3, False),
        (unit("a", kind="shared", devices=3), 4, True),
        (unit("a", kind="shared", devices=4), 1, False),
        (unit("a", kind="pod", devices=0), 4, True),
        (unit("a", kind="pod", devices=0), 5, False),
    ],
)
def test_plain_count_says_what_fits(asked: WorkloadUnit, needed: int, expected: bool) -> None:
    history = History("r")
    history.node_changed(None, node(cpu="4"), 0)
    history.node_changed(None, node("cordoned", unschedulable=True), 0)
    tainted = {"name": "tainted", "taints": [{"key": "k", "effect": "NoSchedule"}]}
    history.slice_changed(None, slice_of(*({"name": f"gpu-{number}"} for number in range(4)), tainted), 0)
    history.claim_changed(None, claim("a", "gpu-0"), 0)
    nodes = usable_nodes(history.nodes.nodes, {"own": "yes"}, [])
    assert fits(asked, needed, nodes, history, lambda driver, entry: True) is expected
