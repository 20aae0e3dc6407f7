"""What the pages show, from small clusters, without a browser."""

from __future__ import annotations

from typing import Any

import pytest
from engine_objects import DRIVER, allocated, allocation, claim, node, pod, pod_group, resource_slice

from haru.dashboard.template_engine import aged
from haru.dashboard.views.device_map import DeviceMap, device_map
from haru.dashboard.views.out_of_service import outages
from haru.dashboard.views.queue import pods_of, subject, waiting_work
from haru.dashboard.views.story import PodRow, story
from haru.dashboard.views.timeline import timeline
from haru.dashboard.views.workloads import Filter, Workload
from haru.drivers.simulated.profiles import load_profile
from haru.drivers.simulated.slices import resource_slices
from haru.engine import SchedulerCache
from haru.explain.cards import Layouts
from haru.explain.happenings import Happening
from haru.kube.device_usage import UTILIZATION_KEY
from haru.kube.names import parse_milliseconds

Obj = dict[str, Any]
NOW = "2026-03-01T12:00:00Z"


def ready(name: str, status: str = "True", **more: Any) -> Obj:
    made = node(name, **more)
    made["status"]["conditions"] = [{"type": "Ready", "status": status}]
    return made


def user(name: str, where: str, *devices: str, owner: str = "") -> list[Obj]:
    """A running pod with devices of its own."""
    made = pod(name, node=where, claims=[name])
    if owner:
        kind, owner_name = owner.split("/")
        reference = {"apiVersion": "v1", "kind": kind, "name": owner_name, "uid": owner, "controller": True}
        made["metadata"]["ownerReferences"] = [reference]
    return [made, allocated(claim(name), allocation(where, *devices), made)]


def mapped(*objects: Obj, **chosen: str) -> DeviceMap:
    return device_map(SchedulerCache.of(objects).snapshot(), Layouts(), Filter(**chosen))


def looks(found: DeviceMap) -> dict[str, list[str]]:
    """Each row by its first name: its cards as `name: owner share, … + idle`."""
    rows = {}
    for place in found.places:
        rows[place.names[0]] = [
            f"{card.name}: "
            + ", ".join(f"{'+'.join(o.name for o in part.owners)} {part.share:g}" for part in card.parts)
            + (f" + {card.free:g} idle" if card.free else "")
            for card in place.cards
        ]
    return rows


def test_map_groups_cards_by_holder_with_idle_and_deviceless_nodes() -> None:
    found = mapped(ready("a"), resource_slice("a", 3), ready("b"), *user("p", "a", "gpu-1", owner="Job/train"))
    assert looks(found) == {"a": ["gpu-0:  + 1 idle", "gpu-1: job/train 1", "gpu-2:  + 1 idle"], "b": []}
    assert (found.totals.nodes, found.totals.cards, found.totals.counts.held, found.totals.counts.free) == (
        2,
        3,
        1000,
        2000,
    )
    assert found.holders == ((Workload("default", "job/train"), 1),)


def test_cards_are_in_natural_order() -> None:
    [place] = mapped(ready("a"), resource_slice("a", 11)).places
    assert [card.name for card in place.cards] == [f"gpu-{number}" for number in range(11)]


def test_equal_nodes_share_a_row_independent_of_card_index() -> None:
    objects = [o for name in ("n1", "n2", "n10", "n3") for o in (ready(name), resource_slice(name, 2))]
    objects += [*user("p", "n2", "gpu-0", owner="Job/j"), *user("q", "n10", "gpu-1", owner="Job/j")]
    assert [place.names for place in mapped(*objects).places] == [("n1", "n3"), ("n2", "n10")]


def test_thousand_idle_nodes_are_one_row() -> None:
    objects = [o for n in range(1000) for o in (ready(f"n{n}"), resource_slice(f"n{n}", 8))]
    [place] = mapped(*objects).places
    assert (len(place.names), len(place.cards)) == (1000, 8)


@pytest.mark.parametrize(
    ("made", "state", "cordoned"),
    [
        (ready("a", "False"), "not ready", False),
        (ready("a", "Unknown"), "unknown", False),
        (node("a"), "unknown", False),
        (ready("a", unschedulable=True), "", True),
    ],
)
def test_node_conditions_give_node_state(made: Obj, state: str, cordoned: bool) -> None:
    found = mapped(made, resource_slice("a", 2))
    [place] = found.places
    assert (place.state, place.cordoned) == (state, cordoned)
    counts = found.totals.counts
    # Without any condition the node's kubelet has not been heard of: nothing says that its cards cannot be allocated.
    closed = cordoned or bool(state and made["status"].get("conditions"))
    assert (counts.unavailable, counts.free) == ((2000, 0) if closed else (0, 2000))


def test_cards_tainted_by_slice_or_rule_and_tainted_nodes_are_marked() -> None:
    broken = {"key": "broken", "effect": "NoExecute"}
    rule = {
        "apiVersion": "resource.k8s.io/v1beta2",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "r", "uid": "r"},
        "spec": {
            "deviceSelector": {"device": "gpu-1"},
            "taint": {"key": "old", "value": "yes", "effect": "NoSchedule"},
        },
    }
    taint = {"key": "team", "effect": "NoSchedule"}
    devices = [{"name": "gpu-0", "taints": [broken]}, {"name": "gpu-1"}, {"name": "gpu-2"}]
    found = mapped(ready("a", taints=[taint]), resource_slice("a", devices), rule)
    [place] = found.places
    assert [card.taints for card in place.cards] == [("broken:NoExecute",), ("old=yes:NoSchedule",), ()]
    assert (place.taints, found.totals.tainted) == (("team:NoSchedule",), 2)


def test_incomplete_pool_is_shown_as_being_published() -> None:
    unfinished = resource_slice("a", 2)
    unfinished["spec"]["pool"]["resourceSliceCount"] = 2
    [place] = mapped(ready("a"), unfinished).places
    assert place.state == "its pool is being published"


def test_only_newest_pool_generation_is_shown() -> None:
    old, new = resource_slice("a", 4), resource_slice("a", 1)
    old["metadata"]["name"], new["spec"]["pool"]["generation"] = "old", 2
    assert looks(mapped(ready("a"), old, new)) == {"a": ["gpu-0:  + 1 idle"]}


def test_shared_pool_and_pool_of_missing_node_have_their_own_rows() -> None:
    found = mapped(resource_slice("", 1, pool="shared", allNodes=True), resource_slice("gone", 1))
    assert {place.names[0]: (place.is_node, place.state) for place in found.places} == {
        f"pool {DRIVER}/shared": (False, ""),
        "gone": (True, "no such node"),
    }


def simulated(profile: str, name: str) -> list[Obj]:
    return [ready(name), *resource_slices(load_profile(profile), name, f"uid-{name}", {}, 1)]


def held(name: str, where: str, *devices: str) -> list[Obj]:
    made, held_claim = user(name, where, *devices)
    for result in held_claim["status"]["allocation"]["devices"]["results"]:
        result["driver"] = "gpu.nvidia.com"
    return [made, held_claim]


def test_partitions_are_parts_of_their_card() -> None:
    objects = simulated("dgx-a100-80gb-mig", "m")
    names = [device["name"] for o in objects for device in o["spec"].get("devices") or ()]
    half = next(name for name in names if name.startswith("gpu-2-mig-3g40gb-"))
    [place] = mapped(*objects, *held("p", "m", half), *held("q", "m", "gpu-5")).places
    assert [card.name for card in place.cards] == [f"gpu-{number}" for number in range(8)]
    part, whole = place.cards[2], place.cards[5]
    assert [(p.device, 0.4 < p.share < 0.6) for p in part.parts] == [(half, True)] and 0.4 < part.free < 0.6
    assert ([p.share for p in whole.parts], whole.free) == ([1.0], 0.0)
    assert place.cards[0].product == "NVIDIA A100-SXM4-80GB"


def test_card_with_consumed_counters_has_no_idle_share() -> None:
    objects = simulated("a30-mig", "m")
    names = [
        d["name"] for o in objects for d in o["spec"].get("devices") or () if d["name"].startswith("gpu-0-mig-1g6gb-")
    ]
    taken = [o for number, name in enumerate(names) for o in held(f"p{number}", "m", name)]
    [place] = mapped(*objects, *taken).places
    assert (len(place.cards[0].parts), place.cards[0].free, place.cards[1].free) == (len(names), 0.0, 1.0)


def test_static_partitions_are_shown_per_card() -> None:
    [place] = mapped(*simulated("a30-mig-balanced", "m")).places
    assert [card.name for card in place.cards] == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]


def test_memory_share_is_part_of_the_card() -> None:
    objects = simulated("t4-shared", "s")
    made, taken = held("p", "s", "gpu-0")
    taken["status"]["allocation"]["devices"]["results"][0] |= {
        "shareID": "one",
        "consumedCapacity": {"memory": "3840Mi"},
    }
    [place] = mapped(*objects, made, taken).places
    [part] = place.cards[0].parts
    assert 0.2 < part.share < 0.3 and 0.7 < place.cards[0].free < 0.8


def test_devices_of_device_plugin_are_counted() -> None:
    counted = ready("p")
    counted["status"]["allocatable"]["nvidia.com/gpu"] = "4"
    limits = {"requests": {"nvidia.com/gpu": "3"}, "limits": {"nvidia.com/gpu": "3"}}
    work = pod("w", node="p", containers=[{"name": "c", "image": "i", "resources": limits}])
    assert looks(mapped(counted, work))["p"] == [
        "1 of 4: pod/w 1",
        "2 of 4: pod/w 1",
        "3 of 4: pod/w 1",
        "4 of 4:  + 1 idle",
    ]


def test_claim_without_pod_is_shown_as_holder() -> None:
    kept = allocated(claim("kept"), allocation("a", "gpu-0"))
    assert looks(mapped(ready("a"), resource_slice("a", 1), kept))["a"] == ["gpu-0: resourceclaim/kept 1"]


FILTERED = [
    *(o for name in ("dgx-1", "dgx-2", "t4-1") for o in (ready(name), resource_slice(name, 2))),
    *user("p", "dgx-1", "gpu-0", owner="Job/train"),
    *user("q", "dgx-1", "gpu-1", owner="Job/other"),
    *user("r", "dgx-2", "gpu-0", owner="Job/other"),
]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({"node": "dgx-1"}, {"dgx-1": ["gpu-0: job/train 1", "gpu-1: job/other 1"]}),
        ({"node": "t4-*"}, {"t4-1": ["gpu-0:  + 1 idle", "gpu-1:  + 1 idle"]}),
        ({"workload": "job/train"}, {"dgx-1": ["gpu-0: job/train 1", "gpu-1: other work 1"]}),
        ({"workload": "tr*", "namespace": "default"}, {"dgx-1": ["gpu-0: job/train 1", "gpu-1: other work 1"]}),
        ({"namespace": "elsewhere"}, {}),
        ({"workload": "other", "node": "dgx-2"}, {"dgx-2": ["gpu-0: job/other 1", "gpu-1:  + 1 idle"]}),
    ],
)
def test_filters_select_places(chosen: dict[str, str], expected: dict[str, list[str]]) -> None:
    assert looks(mapped(*FILTERED, **chosen)) == expected


def test_layout_of_pool_is_cached_until_pool_changes() -> None:
    cluster, layouts = SchedulerCache.of([resource_slice("a", 1), resource_slice("b", 1)]), Layouts()
    before = layouts.of(cluster.snapshot().devices.pools)
    cluster.apply(resource_slice("b", 2))
    after = layouts.of(cluster.snapshot().devices.pools)
    assert after[0] is before[0] and after[1] is not before[1]


# -- the queue


def waits(name: str, created: str = NOW, priority: int = 0, **more: Any) -> Obj:
    made = pod(name, cpu="99", **more)
    made["metadata"]["creationTimestamp"] = created
    made["spec"]["priority"] = priority
    return made


def test_queue_is_sorted_by_priority_and_age() -> None:
    early, late = "2026-03-01T10:00:00Z", "2026-03-01T11:00:00Z"
    objects = [ready("a"), waits("late", late), waits("early", early), waits("urgent", late, 10), pod("runs", node="a")]
    gone = waits("gone")
    gone["metadata"]["deletionTimestamp"] = NOW
    found = waiting_work(SchedulerCache.of([*objects, gone]).snapshot())
    assert [(w.workload.name, w.since, w.priority) for w in found] == [
        ("pod/urgent", late, 10),
        ("pod/early", early, 0),
        ("pod/late", late, 0),
    ]


def test_pods_of_a_group_are_one_queue_entry_with_their_condition() -> None:
    members = [waits("m-0", group="g"), waits("m-1", group="g")]
    members[1]["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": "no room"}]
    snapshot = SchedulerCache.of([ready("a"), pod_group("g", 2), *members]).snapshot()
    [found] = waiting_work(snapshot)
    assert (found.workload, found.pods, found.said) == (Workload("default", "podgroup/g"), 2, "no room")
    about = subject(snapshot, found.workload, pods_of(snapshot, found.workload))
    assert about is not None and (about[0], about[1]["metadata"]["name"]) == ("podgroup", "g")
    assert waiting_work(snapshot, Filter(namespace="elsewhere")) == ()


def test_work_whose_pods_are_not_made_waits_too() -> None:
    early, template = "2026-03-01T10:00:00Z", {"metadata": {}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": True}
    meta = {"name": "web-1", "namespace": "default", "uid": "r", "creationTimestamp": early}
    spec: Obj = {"replicas": 3, "template": template}
    replicas: Obj = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {**meta, "ownerReferences": [owner]}}
    job: Obj = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {**meta, "name": "night", "uid": "j"}}
    job["spec"] = {"parallelism": 2, "completions": 2, "suspend": True, "template": template}
    runs = pod("web-1-x", node="a")
    runs["metadata"]["ownerReferences"] = [{**owner, "kind": "ReplicaSet", "name": "web-1", "uid": "r"}]
    older: Obj = {**replicas, "metadata": {**replicas["metadata"], "name": "web-0", "uid": "r0"}}
    makers = [{**replicas, "spec": spec}, {**older, "spec": {**spec, "replicas": 1}}, job]
    snapshot = SchedulerCache.of([ready("a"), *makers, runs]).snapshot()
    found = waiting_work(snapshot)
    assert [(each.workload.name, each.pods) for each in found] == [("deployment/web", 3), ("job/night", 2)]
    about = subject(snapshot, found[0].workload, ())
    assert about is not None and about[0] == "replicaset"
    enough = SchedulerCache.of([ready("a"), {**replicas, "spec": {**spec, "replicas": 1}}, runs]).snapshot()
    assert waiting_work(enough) == ()


# -- a workload's page


def test_story_of_pending_and_of_running_pod() -> None:
    objects = [ready("a"), resource_slice("a", 2), *user("runs", "a", "gpu-0"), waits("waits")]
    snapshot = SchedulerCache.of(objects).snapshot()
    told = story(snapshot, Workload("default", "pod/waits"), (), NOW)
    assert told is not None and told.explanation.verdict == "NeverFits" and told.here is None
    assert [(row.phase, row.node) for row in told.pods] == [("Pending", "")]
    told = story(snapshot, Workload("default", "pod/runs"), (), NOW)
    assert told is not None and told.explanation.verdict == "Runs" and told.here is not None
    [row] = told.pods
    assert (row.node, [device.device for claim in row.holds for device in claim.devices]) == ("a", ["gpu-0"])


def test_pods_of_a_story_tell_their_utilization_restarts_and_why_containers_do_not_run() -> None:
    holder, held_claim = user("hangs", "a", "gpu-0", "gpu-1")
    entries = [
        {"driver": DRIVER, "pool": "a", "device": f"gpu-{n}", "data": {UTILIZATION_KEY: str(40 * n)}} for n in (0, 1)
    ]
    held_claim["status"]["devices"] = entries
    again = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}}
    last = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    holder["status"]["containerStatuses"] = [{"name": "c", "restartCount": 3, "state": again, "lastState": last}]
    starts = waits("starts")
    starts["status"]["containerStatuses"] = [{"name": "c", "state": {"waiting": {"reason": "ContainerCreating"}}}]
    snapshot = SchedulerCache.of([ready("a"), resource_slice("a", 2), holder, held_claim, starts]).snapshot()

    def row(name: str) -> PodRow:
        told = story(snapshot, Workload("default", f"pod/{name}"), (), NOW)
        assert told is not None
        return told.pods[0]

    assert (row("hangs").percent, row("hangs").restarts) == (20.0, 3)
    assert row("hangs").trouble == "CrashLoopBackOff: back-off 40s; exit code 137 (OOMKilled)"
    assert (row("starts").percent, row("starts").restarts, row("starts").trouble) == (None, 0, "")


def test_missing_object_has_no_story() -> None:
    snapshot = SchedulerCache.of([ready("a")]).snapshot()
    for name in ("pod/x", "job/x", "podgroup/x", "resourceclaim/x", "deployment/x", "nonsense/x"):
        assert story(snapshot, Workload("default", name), (), NOW) is None


def test_story_has_events_of_workload_and_its_objects() -> None:
    members = user("m", "a", "gpu-0")
    members[0]["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    snapshot = SchedulerCache.of([ready("a"), resource_slice("a", 1), pod_group("g", 1), *members]).snapshot()
    uids = ("uid-group-g", "uid-m", "uid-claim-m", "uid-other", "")
    events = [{**event("x", uid, NOW, ""), "involvedObject": {"kind": "K", "name": "x", "uid": uid}} for uid in uids]
    told = story(snapshot, Workload("default", "podgroup/g"), events, NOW)
    assert told is not None and {e.reason for e in told.entries if e.kind == "K"} == set(uids[:3])


def test_story_of_job_with_refused_pods_names_admission_error() -> None:
    template = {"spec": {"containers": [{"name": "main", "image": "x"}]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"parallelism": 2, "template": template}}
    named = {**job, "metadata": {"name": "j", "namespace": "default", "uid": "uid-j"}}
    refused = event("j", "FailedCreate", NOW, "Error creating: no label team")
    told = story(SchedulerCache.of([ready("a"), named]).snapshot(), Workload("default", "job/j"), [refused], NOW)
    assert told is not None and told.explanation.verdict == "FitsIf"
    assert told.explanation.summary.startswith("2 pods not made: Error creating: no label team")


def event(name: str, reason: str, when: str, message: str, **more: Any) -> Obj:
    about = {"kind": "Pod", "name": name, "uid": f"uid-{name}"}
    told = {"reason": reason, "message": message, "lastTimestamp": when}
    return {"metadata": {"name": f"{name}.1"}, "involvedObject": about, **told, **more}


def test_timeline_is_newest_first_and_merges_equal_entries() -> None:
    made = waits("p", "2026-03-01T10:00:00Z")
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    made["status"]["conditions"] = [{**refused, "lastTransitionTime": "2026-03-01T10:00:01Z"}]
    events = [
        event("p", "FailedScheduling", "2026-03-01T10:00:02Z", "no room for p", type="Warning"),
        event("q", "FailedScheduling", "2026-03-01T10:00:02Z", "no room for q", type="Warning"),
        event("p", "Later", "", "m", eventTime="2026-03-01T10:00:03.250000Z"),
    ]
    found = timeline([made], events)
    assert [(e.time[-9:], e.reason, e.name, e.count, e.warning) for e in found] == [
        ("10:00:03Z", "Later", "p", 1, False),
        ("10:00:02Z", "FailedScheduling", "p", 2, True),
        ("10:00:01Z", "PodScheduled False", "p", 1, True),
        ("10:00:00Z", "Created", "p", 1, False),
    ]
    assert found[2].message == "Unschedulable: no room"


def test_timeline_merges_entries_that_differ_in_generated_names_some_seconds_apart() -> None:
    events = [
        event("job", "SuccessfulCreate", f"2026-03-01T10:00:0{n}Z", f"Created pod: job-{n}-x7f2k") for n in range(4)
    ]
    events += [event(f"p-{n}", "Scheduled", f"2026-03-01T10:00:0{n}Z", f"assigned p-{n} to node-{n}") for n in range(3)]
    events += [event("job", "SuccessfulCreate", "2026-03-01T10:09:00Z", "Created pod: job-9-aaaaa")]
    assert [(e.time[-9:], e.reason, e.count, e.times) for e in timeline((), events)] == [
        ("10:09:00Z", "SuccessfulCreate", 1, 1),
        ("10:00:00Z", "Scheduled", 3, 1),
        ("10:00:00Z", "SuccessfulCreate", 1, 4),
    ]


def test_what_is_out_of_service_has_its_reason_its_page_and_since_when() -> None:
    xid = [{"key": "xid", "value": "79", "effect": "NoExecute"}]
    lost, cordoned = ready("lost", "Unknown"), ready("cordoned", unschedulable=True)
    lost["status"]["conditions"][0] |= {"lastTransitionTime": NOW, "message": "Kubelet stopped posting node status."}
    snapshot = SchedulerCache.of(
        [ready("a"), lost, cordoned, resource_slice("a", [{"name": "gpu-0", "taints": xid}, {"name": "gpu-1"}])]
    ).snapshot()
    recorded = [
        Happening("fault", "a", "", "gpu-0 on a is tainted: xid=79:NoExecute", parse_milliseconds(NOW), ended)
        for ended in (1, 0)
    ]
    found = outages(snapshot, Layouts(), recorded)
    assert [(each.name, each.href, each.why, each.since, each.grave) for each in found] == [
        ("cordoned", "/node/cordoned", "cordoned", "", False),
        ("lost", "/node/lost", "Kubelet stopped posting node status.", NOW, True),
        ("gpu-0", f"/device/{DRIVER}/a/gpu-0", "xid=79:NoExecute", NOW, True),
    ]
    assert [each.name for each in outages(snapshot, Layouts(), chosen=Filter(node="a"))] == ["gpu-0"]


def test_times_in_texts_are_shown_as_ages_and_the_rest_stays_escaped() -> None:
    told = str(aged("<b> since 2026-03-01T10:00:00Z, 12026-03-01"))
    assert told == ('&lt;b&gt; since <time datetime="2026-03-01T10:00:00Z">2026-03-01T10:00:00Z</time>, 12026-03-01')
