"""Extended resources that a DeviceClass stands behind: clusters, pods, and what becomes of them (KEP-5004)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from engine_objects import (
    DRIVER,
    Obj,
    allocation,
    claim,
    decide_all,
    device_class,
    node,
    options,
    pod,
    pod_group,
    resource_slice,
)

from haru.engine.dra.extended_resources import ANNOTATION, explicit_classes, extended_resource_claim_owner
from haru.engine.plugins.dynamicresources.extended_resources import extended_resource_claim_use
from haru.engine.plugins.dynamicresources.pod_claims import ClaimUse
from haru.engine.podgroup import decide
from haru.engine.state.cache import SchedulerCache
from haru.engine.state.decision import Decision, MemberDecision
from haru.engine.state.pod_info import PodInfo

GPU, NIC = "example.com/gpu", "example.com/nic"
IMPLICIT = "deviceclass.resource.kubernetes.io/gpu"


def with_plugin(name: str, cpu: str = "8", **resources: str) -> Obj:
    """A node whose device plugin serves resources of its own (`gpu="2"` is example.com/gpu: 2)."""
    made = node(name, cpu=cpu)
    made["status"]["allocatable"] |= {f"example.com/{short}": amount for short, amount in resources.items()}
    return made


def container(name: str, cpu: str = "1", **resources: Any) -> Obj:
    requests = {"cpu": cpu, **{f"example.com/{short}": str(amount) for short, amount in resources.items()}}
    return {"name": name, "resources": {"requests": requests}}


def asking(name: str = "p", group: str = "", **resources: Any) -> Obj:
    """A pod with one container that asks for extended resources."""
    return pod(name, group=group, containers=[container("main", **resources)])


def typed(name: str, resource: str = "", **spec: Any) -> Obj:
    """A class of the devices that have its name as their type."""
    named = {"extendedResourceName": resource} if resource else {}
    return device_class(name, [f'device.attributes["{DRIVER}"].type == "{name}"'], **named, **spec)


def devices(where: str, **counts: int) -> Obj:
    """A slice with so many devices of each type."""
    named = [(kind, f"{kind}-{i}") for kind, count in counts.items() for i in range(count)]
    return resource_slice(where, [{"name": name, "attributes": {"type": {"string": kind}}} for kind, name in named])


def dra_nodes(*counts: int) -> list[Obj]:
    """The class behind example.com/gpu, and nodes n0, n1, … with so many GPUs."""
    found: list[Obj] = [typed("gpu", GPU)]
    for i, count in enumerate(counts):
        found += [node(f"n{i}"), devices(f"n{i}", gpu=count)]
    return found


def made_for(member: MemberDecision) -> Obj | None:
    """The spec of the claim that is to be created for a member."""
    return next((a.new_claim for a in member.allocations if a.new_claim is not None), None)


def requests_of(obj: Obj | None) -> list[tuple[str, str, int]]:
    found = (obj or {"spec": {"devices": {"requests": []}}})["spec"]["devices"]["requests"]
    return [(r["name"], r["exactly"]["deviceClassName"], r["exactly"]["count"]) for r in found]


def given(member: MemberDecision) -> list[str]:
    return [r["device"] for a in member.allocations for r in a.allocation["devices"]["results"]]


def only(decision: Decision) -> MemberDecision:
    assert decision.status == "scheduled", decision.message
    [member] = decision.placed
    return member


# -- one pod ---------------------------------------------------------------------------------------------------------


def test_pod_gets_devices_of_class_behind_extended_resource() -> None:
    decision = decide_all([*dra_nodes(4), asking(gpu=2)])
    member = only(decision)
    [one] = member.allocations
    assert one.new_claim is not None
    meta = one.new_claim["metadata"]
    assert meta["generateName"] == "p-extended-resources-"
    assert meta["annotations"] == {ANNOTATION: "true"}
    [owner] = meta["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == ("Pod", "p", "uid-p", True)
    # The name sorts behind `cpu`, so its index is 1.
    assert one.new_claim["spec"] == {
        "devices": {
            "requests": [
                {
                    "name": "container-0-request-1",
                    "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2},
                }
            ]
        }
    }
    assert one.reserve_for == {"resource": "pods", "name": "p", "uid": "uid-p"}
    assert given(member) == ["gpu-0", "gpu-1"]
    assert member.extended is not None
    assert member.extended.path == one.path
    assert member.extended.mappings == (
        {"containerName": "main", "resourceName": GPU, "requestName": "container-0-request-1"},
    )


VARIANTS = [
    # (what, the node, the class mapping, containers, requests of the special claim or None where it is refused)
    ("the plugin serves it", with_plugin("a", gpu="2"), {GPU: "gpu"}, [container("c", gpu=2)], []),
    ("a plugin without devices does not", with_plugin("a", gpu="0"), {GPU: "gpu"}, [container("c", gpu=1)], ["0-1"]),
    ("the plugin has too few", with_plugin("a", gpu="1"), {GPU: "gpu"}, [container("c", gpu=2)], None),
    ("absent and not mapped", node("a"), {}, [container("c", gpu=1)], None),
    ("one by plugin, one by DRA", with_plugin("a", gpu="1"), {NIC: "nic"}, [container("c", gpu=1, nic=1)], ["0-2"]),
    ("both mapped, one by plugin", with_plugin("a", gpu="1"), {GPU: "gpu", NIC: "nic"},
     [container("c", gpu=1, nic=1)], ["0-2"]),
    ("both by DRA", node("a"), {GPU: "gpu", NIC: "nic"}, [container("c", gpu=1, nic=1)], ["0-1", "0-2"]),
    ("each container for itself", node("a"), {GPU: "gpu"},
     [container("c", gpu=1), container("d"), container("e", gpu=2)], ["0-1", "2-1"]),
    ("nothing is asked", node("a"), {GPU: "gpu"}, [container("c", gpu=0)], []),
]  # fmt: skip


@pytest.mark.parametrize(("what", "where", "mapping", "containers", "expected"), VARIANTS, ids=lambda v: str(v)[:30])
def test_extended_resource_request_depends_on_node(
    what: str, where: Obj, mapping: dict[str, str], containers: list[Obj], expected: list[str] | None
) -> None:
    classes = [typed(kind, next((r for r, c in mapping.items() if c == kind), "")) for kind in ("gpu", "nic")]
    objects = [*classes, where, devices("a", gpu=8, nic=8), pod("p", containers=containers)]
    decision = decide_all(objects)
    if expected is None:
        assert (decision.status, decision.placed) == ("unschedulable", ())
        assert decision.message == "0/1 nodes are available: 1 Insufficient example.com/gpu."
        return
    member = only(decision)
    names = [name for name, _, _ in requests_of(made_for(member))]
    assert names == [f"container-{text.replace('-', '-request-')}" for text in expected]
    assert (member.extended is None) == (not expected)


@pytest.mark.parametrize(
    ("initial", "requests", "uses"),
    [
        ([("a", 2, "")], {"main": 2}, {"a": ["main"]}),
        ([("a", 3, "")], {"a": 1, "main": 2}, {"a": ["main", "a"]}),
        ([("a", 3, ""), ("b", 5, "")], {"b": 3, "main": 2}, {"a": ["main", "b"], "b": ["main", "b"]}),
        ([("a", 1, "Always")], {"a": 1, "main": 2}, {"a": ["a"]}),
        ([("a", 3, ""), ("b", 1, "Always")], {"b": 1, "main": 2}, {"a": ["b", "main"], "b": ["b"]}),
        ([("a", 1, "Always"), ("b", 3, "")], {"a": 1, "b": 1, "main": 2}, {"a": ["a"], "b": ["main", "b"]}),
    ],
)
def test_init_container_uses_the_devices_of_containers_that_start_after_it(
    initial: list[tuple[str, int, str]], requests: dict[str, int], uses: dict[str, list[str]]
) -> None:
    ahead = [
        container(name, gpu=count) | ({"restartPolicy": policy} if policy else {}) for name, count, policy in initial
    ]
    work = pod("p", containers=[container("main", gpu=2)], initContainers=ahead)
    total = sum(requests.values())
    member = only(decide_all([*dra_nodes(total), work]))
    owners = {f"container-{index}-request-1": name for index, name in enumerate([*(one[0] for one in initial), "main"])}
    assert {owners[name]: count for name, _, count in requests_of(made_for(member))} == requests
    assert member.extended is not None
    found: dict[str, list[str]] = {}
    for mapping in member.extended.mappings:
        found.setdefault(mapping["containerName"], []).append(owners[mapping["requestName"]])
    assert found == {"main": ["main"], **uses}
    assert decide_all([*dra_nodes(total - 1), work]).status == "unschedulable"


def test_generated_requests_are_sorted_by_name_as_text() -> None:
    work = pod("p", containers=[container(f"c{i}", cpu="100m", gpu=1) for i in range(11)])
    names = [name for name, _, _ in requests_of(made_for(only(decide_all([*dra_nodes(11), work]))))]
    assert names[:4] == [f"container-{i}-request-1" for i in (0, 1, 10, 2)]


def test_pod_level_extended_resources_are_ignored() -> None:
    work = pod("p", containers=[container("main", gpu=1)], resources={"requests": {"cpu": "2", GPU: "7"}})
    assert requests_of(made_for(only(decide_all([*dra_nodes(1), work])))) == [("container-0-request-1", "gpu", 1)]


def test_implicit_extended_resource_name_of_class_works() -> None:
    containers = [{"name": "c", "resources": {"requests": {IMPLICIT: "2"}}}]
    objects = [typed("gpu"), node("a"), devices("a", gpu=2), pod("p", containers=containers)]
    assert requests_of(made_for(only(decide_all(objects)))) == [("container-0-request-0", "gpu", 2)]
    other = pod("q", containers=[{"name": "c", "resources": {"requests": {f"{IMPLICIT}-x": "1"}}}])
    message = decide_all([*objects[:3], other]).message
    assert message == f"0/1 nodes are available: 1 Insufficient {IMPLICIT}-x."


def aged(name: str, created: str | None) -> Obj:
    made = typed(name, GPU)
    made["metadata"]["creationTimestamp"] = created
    return made


WINNERS = [
    ([("a", "2026-01-01T00:00:00Z"), ("b", "2026-01-02T00:00:00Z")], "b"),
    ([("b", "2026-01-02T00:00:00Z"), ("a", "2026-01-01T00:00:00Z")], "b"),
    ([("b", "2026-01-01T00:00:00Z"), ("a", "2026-01-01T00:00:00Z")], "a"),
    ([("b", None), ("a", None)], "a"),
    ([("b", "2026-01-02T00:00:00Z")], "b"),
]


@pytest.mark.parametrize(("classes", "winner"), WINNERS)
def test_newest_class_of_an_extended_resource_wins(classes: list[tuple[str, str | None]], winner: str) -> None:
    cluster = SchedulerCache.of([aged(*entry) for entry in classes])
    assert cluster.snapshot().extended_resources == {GPU: winner}
    for name, created in classes:
        if name == winner:
            cluster.remove(aged(name, created))
    left = sorted(name for name, _ in classes if name != winner)
    assert cluster.snapshot().extended_resources == ({GPU: left[0]} if left else {})
    assert explicit_classes({}) == {}


def test_gate_off_makes_extended_resource_insufficient() -> None:
    decision = decide_all([*dra_nodes(4), asking(gpu=1)], extended_resources=False)
    assert decision.message == "0/1 nodes are available: 1 Insufficient example.com/gpu."


def test_extended_resource_claim_comes_after_other_claims() -> None:
    work = pod("p", claims=["own"], containers=[container("main", gpu=1)])
    member = only(decide_all([*dra_nodes(2), claim("own"), work]))
    assert [a.claim_name for a in member.allocations] == ["own", "p-extended-resources-"]
    assert given(member) == ["gpu-0", "gpu-1"]
    short = decide_all([*dra_nodes(1), claim("own"), work])
    assert short.message == "0/1 nodes are available: 1 cannot allocate all claims."


def test_node_with_a_pool_that_contradicts_itself_is_counted_apart() -> None:
    twice = [resource_slice("n0", [{"name": "gpu-0"}]), resource_slice("n0", [{"name": "gpu-0"}])]
    for number, one in enumerate(twice):
        one["metadata"] |= {"name": f"twice-{number}", "uid": f"twice-{number}"}
        one["spec"]["pool"] = {"name": "n0", "generation": 1, "resourceSliceCount": 2}
    cluster = [device_class(), node("n0"), node("n1"), *twice]
    decision = decide_all([*cluster, claim("own"), pod("p", claims=["own"])])
    told = "1 cannot allocate all claims, 1 invalid resource pools were encountered"
    assert decision.message == f"0/2 nodes are available: {told}."


def test_too_few_devices_for_extended_resource_are_reported() -> None:
    decision = decide_all([*dra_nodes(1), asking(gpu=2)])
    assert decision.message == "0/1 nodes are available: 1 cannot allocate all claims."
    assert decision.members[0].plugins == ("DynamicResources",)


@pytest.mark.parametrize(("gate", "claims"), [(True, "still not schedulable"), (False, "no new claims to deallocate")])
def test_extended_resource_that_a_class_backs_counts_as_a_claim_in_the_message(gate: bool, claims: str) -> None:
    work = [*dra_nodes(1), with_plugin("plugin", gpu="1"), asking(gpu=2, cpu="9")]
    message = decide_all(work, extended_resources=gate, preempt_for_pods=True).message
    assert f". {claims}, preemption: 0/2 nodes are available: " in message


# -- several nodes and pods ------------------------------------------------------------------------------------------


def test_mixed_cluster_uses_device_plugin_and_device_class() -> None:
    cluster = SchedulerCache.of([*dra_nodes(2), with_plugin("plugin", gpu="2")])
    places: list[tuple[str, int]] = []
    for i in range(5):
        work = asking(f"p{i}", gpu=1)
        cluster.apply(work)
        decision = decide_one(cluster, work)
        for member in decision.placed:
            places.append((member.node or "", len(given(member))))
            enact(cluster, member)
    assert sorted(places) == [("n0", 1), ("n0", 1), ("plugin", 0), ("plugin", 0)]


def decide_one(cluster: SchedulerCache, work: Obj, **kwargs: Any) -> Decision:
    return decide(cluster.snapshot(), [work], group=None, options=options(**kwargs))


def enact(cluster: SchedulerCache, member: MemberDecision) -> None:
    """What a scheduler does with a decision: claims are created, then written, then the pod is bound."""
    for one in member.allocations:
        held = one.new_claim or cluster.snapshot().claims[one.path]
        if one.new_claim is not None:
            meta = {**held["metadata"], "name": f"{one.claim_name}x", "uid": f"uid-{one.claim_name}"}
            held = {**held, "metadata": meta}
        cluster.apply({**held, "status": {"allocation": one.allocation, "reservedFor": [one.reserve_for]}})
    cluster.assume_pod(member.pod, member.node or "")


def gang(size: int, minimum: int, **resources: Any) -> list[Obj]:
    return [pod_group("g", minimum), *(asking(f"m{i}", "g", **resources) for i in range(size))]


GANGS = [
    ("whole nodes", [*dra_nodes(8, 8)], gang(2, 2, gpu=8), 2),
    ("all or nothing", [*dra_nodes(8)], gang(2, 2, gpu=8), 0),
    ("several on a node", [*dra_nodes(4, 2)], gang(3, 3, gpu=2), 3),
    ("one short", [*dra_nodes(4, 1)], gang(3, 3, gpu=2), 0),
    ("plugin and class together", [*dra_nodes(2), with_plugin("a", gpu="2")], gang(2, 2, gpu=2), 2),
    ("plugin and class, one short", [*dra_nodes(2), with_plugin("a", gpu="1")], gang(2, 2, gpu=2), 0),
    ("extras stay out", [*dra_nodes(2, 2)], gang(4, 2, gpu=1), 4),
]


@pytest.mark.parametrize(("what", "objects", "work", "placed"), GANGS, ids=lambda v: v if isinstance(v, str) else "")
def test_gang_with_extended_resources_fits_as_expected(
    what: str, objects: list[Obj], work: list[Obj], placed: int
) -> None:
    decision = decide_all([*objects, *work], "g")
    assert len(decision.placed) == placed
    taken = [(m.node, device) for m in decision.placed for device in given(m)]
    assert len(taken) == len(set(taken))
    assert decision.status == ("scheduled" if placed else "unschedulable")


def test_small_member_leaves_whole_node_to_large_member() -> None:
    objects = [typed("gpu", GPU), node("whole"), devices("whole", gpu=8), node("part"), devices("part", gpu=1)]
    big, small = asking("big", "g", gpu=8), asking("small", "g", gpu=1)
    small["spec"]["priority"] = 1
    for seed in range(8):
        decision = decide_all([*objects, pod_group("g", 2), small, big], "g", seed=seed)
        assert {m.pod.name: m.node for m in decision.placed} == {"small": "part", "big": "whole"}


def test_packing_uses_the_variant_of_each_node() -> None:
    """A node with a plugin takes as many as the plugin has, beside one whose devices are allocated."""
    objects = [typed("gpu", GPU), with_plugin("a", gpu="3"), node("b"), devices("b", gpu=4), with_plugin("c", gpu="1")]
    first = pod("first", group="g", containers=[container("main", gpu=4)], priority=1)
    decision = decide_all([*objects, pod_group("g", 4), first, *gang(3, 4, gpu=1)[1:]], "g")
    places = {m.pod.name: (m.node, len(given(m))) for m in decision.placed}
    assert places["first"] == ("b", 4)
    assert {place for name, place in places.items() if name != "first"} <= {("a", 0), ("c", 0)}
    assert len(places) == 4


def test_random_gangs_fit_exactly_by_count() -> None:
    """How many members fit is plain arithmetic here: the sum over nodes of what each serves."""
    rng = random.Random(5)
    for _ in range(60):
        objects: list[Obj] = [typed("gpu", GPU)]
        room, each = 0, rng.randint(1, 3)
        for i in range(rng.randint(1, 4)):
            count = rng.randint(0, 5)
            if rng.random() < 0.4 and count:
                objects.append(with_plugin(f"n{i}", gpu=str(count)))
            else:
                objects += [node(f"n{i}"), *([devices(f"n{i}", gpu=count)] if count else [])]
            room += count // each
        size = rng.randint(1, 5)
        decision = decide_all([*objects, *gang(size, size, gpu=each)], "g", seed=rng.randint(0, 99))
        assert (decision.status == "scheduled") == (size <= room)


# -- claims that are there already -----------------------------------------------------------------------------------


def special(name: str, owner: Obj, count: int, node_name: str = "", *held: str, **meta: Any) -> Obj:
    """A claim that an earlier attempt made for a pod with `asking(gpu=count)`, allocated on a node if one is named."""
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    made = claim(name, owner=owner, requests=[{"name": "container-0-request-1", "exactly": exactly}])
    made["metadata"] |= {"annotations": {ANNOTATION: "true"}, **meta}
    if node_name:
        users = [{"resource": "pods", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}]
        made["status"] = {"allocation": allocation(node_name, *held), "reservedFor": users}
    return made


def test_allocated_claim_of_earlier_attempt_is_reused() -> None:
    work = asking(gpu=1)
    left = special("p-extended-resources-abcde", work, 1, "n1", "gpu-0")
    for seed in range(6):
        member = only(decide_all([*dra_nodes(4, 1, 4), work, left], seed=seed))
        assert (member.node, member.allocations, member.reservations) == ("n1", (), ())
        assert member.extended is not None
        assert member.extended.path == "default/p-extended-resources-abcde"
        assert member.extended.mappings[0]["requestName"] == "container-0-request-1"


def test_allocated_extended_resource_claim_blocks_its_devices() -> None:
    left = special("p-extended-resources-abcde", asking(gpu=1), 1, "n0", "gpu-0")
    decision = decide_all([*dra_nodes(1), left, asking("q", gpu=1)])
    assert decision.message == "0/1 nodes are available: 1 cannot allocate all claims."


def test_allocated_claim_is_bound_even_without_its_class() -> None:
    work = asking(gpu=1)
    left = special("p-extended-resources-abcde", work, 1, "n0", "gpu-0")
    assert only(decide_all([node("n0"), devices("n0", gpu=1), work, left])).node == "n0"


TIED = [
    ("its node is gone", [*dra_nodes(4)], "gone", 1),
    ("the node serves the resource itself by now", [typed("gpu", GPU), with_plugin("n0", gpu="4")], "n0", 1),
    ("it is for another number of devices", [*dra_nodes(4)], "n0", 2),
]


@pytest.mark.parametrize(("what", "objects", "where", "count"), TIED, ids=lambda v: v if isinstance(v, str) else "")
def test_unusable_claim_blocks_pod_until_deallocated(what: str, objects: list[Obj], where: str, count: int) -> None:
    work = asking(gpu=1)
    left = special("p-extended-resources-abcde", work, count, where, *(f"gpu-{i}" for i in range(count)))
    decision = decide_all([*objects, work, left])
    assert decision.message == "0/1 nodes are available: 1 resourceclaim not available on the node."
    assert decision.members[0].reasons[0].data["claim"] == "default/p-extended-resources-abcde"
    assert only(decide_all([*objects, work])).node == "n0"


def test_unallocated_claim_of_earlier_attempt_is_reused() -> None:
    work = asking(gpu=1)
    left = special("p-extended-resources-abcde", work, 1)
    [one] = only(decide_all([*dra_nodes(1), work, left])).allocations
    assert (one.claim_name, one.claim_uid, one.new_claim) == (
        "p-extended-resources-abcde",
        "uid-claim-p-extended-resources-abcde",
        None,
    )
    other = special("p-extended-resources-abcde", work, 2)
    [one] = only(decide_all([*dra_nodes(1), work, other])).allocations
    assert one.new_claim is not None


CHOICES = [
    (["b", "a"], {}, "a", "the first by name"),
    (["a", "b"], {"recorded": "b"}, "b", "the one that the pod's status names"),
    (["a", "b"], {"recorded": "a", "allocated": "b"}, "b", "what is allocated counts most"),
    (["a", "b"], {"deleting": "a"}, "b", "one that goes away does not count"),
    ([], {}, "", "none"),
]


@pytest.mark.parametrize(("names", "marks", "chosen", "what"), CHOICES, ids=lambda v: v if isinstance(v, str) else "")
def test_recorded_or_oldest_claim_is_the_pods_own(
    names: list[str], marks: dict[str, str], chosen: str, what: str
) -> None:
    work = asking(gpu=1)
    if "recorded" in marks:
        work["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": marks["recorded"]}
    claims = []
    for name in names:
        meta = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if marks.get("deleting") == name else {}
        held = ("n0", "gpu-0") if marks.get("allocated") == name else ()
        claims.append(special(name, work, 1, *held, **meta))
    foreign = special("0", asking("other", gpu=1), 1)
    plain = claim("00", owner=work)
    snapshot = SchedulerCache.of([work, foreign, plain, *claims]).snapshot()
    use: ClaimUse | None = extended_resource_claim_use(snapshot, PodInfo.of(work))
    assert (use.claim["metadata"]["name"] if use else "") == chosen


def test_index_of_extended_resource_claims_follows_events() -> None:
    work = asking(gpu=1)
    cluster = SchedulerCache.of([special("a", work, 1), special("b", work, 1), claim("c", owner=work)])
    assert cluster.snapshot().claim_index.extended["uid-p"] == {"default/a", "default/b"}
    cluster.remove(special("a", work, 1))
    assert cluster.snapshot().claim_index.extended["uid-p"] == {"default/b"}
    cluster.apply({**special("b", work, 1), "metadata": claim("b", owner=work)["metadata"]})
    assert "uid-p" not in cluster.snapshot().claim_index.extended
    assert extended_resource_claim_owner(claim("c", owner=pod_group("g", 1))) == ""


# -- making room -----------------------------------------------------------------------------------------------------


def test_higher_priority_pod_preempts_holder_of_extended_resource() -> None:
    low = asking("low", gpu=2)
    low["spec"] |= {"nodeName": "n0", "priority": 0}
    recorded = {"resourceClaimName": "low-extended-resources-x", "requestMappings": []}
    low["status"] = {"phase": "Running", "extendedResourceClaimStatus": recorded}
    held = special("low-extended-resources-x", low, 2, "n0", "gpu-0", "gpu-1")
    high = asking("high", gpu=2)
    high["spec"]["priority"] = 10
    decision = decide_all([*dra_nodes(2), low, held, high], only=[high], preempt_for_pods=True)
    assert decision.status == "nominated"
    assert [eviction.pod.name for eviction in decision.evictions] == ["low"]
    [member] = decision.nominated
    assert member.node == "n0"
    assert requests_of(made_for(member)) == [("container-0-request-1", "gpu", 2)]
    assert given(member) == ["gpu-0", "gpu-1"]
