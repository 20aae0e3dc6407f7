"""VolumeBinding: which node a pod with volume claims gets, which volume each claim, and why a node is refused."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from engine_objects import Obj, claim, decide_all, node, options, pod, pod_group
from hypothesis import given, settings
from hypothesis import strategies as st
from volume_objects import (
    FAST,
    HOSTNAME,
    LOCAL,
    PROVISIONER,
    attachment,
    csi_capacity,
    csi_driver,
    csi_volume,
    storage_class,
    uses,
    volume,
    volume_claim,
    volume_limit,
    within,
)

from haru.engine import SchedulerCache, run_round
from haru.engine.framework import DEFAULT_PROFILE
from haru.engine.plugins import assumed_objects
from haru.engine.podgroup import decide
from haru.engine.state import MemberDecision
from haru.kube.selectors import node_selector_matches

NO_MATCH = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
NO_REACH = "node(s) didn't match PersistentVolume's node affinity"
GONE = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
UNBOUND = "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims."
NODES = [node("a", labels={"zone": "z1"}), node("b", labels={"zone": "z2"})]
DYNAMIC = storage_class(FAST, PROVISIONER)


def refused(*messages: str) -> str:
    return f"0/2 nodes are available: {', '.join(messages)}."


@dataclass
class Case:
    """`claims` of the pod `p`; `bindings`: `claim: volume`, an empty volume is provisioned."""

    name: str
    objects: list[Obj]
    nodes: set[str]
    bindings: dict[str, str] = field(default_factory=dict)
    message: str = ""
    claims: tuple[str, ...] = ("c",)


CASES = [
    Case("smallest volume that fits", [
        storage_class(), volume_claim("c", "2Gi"), volume("v5", "a", "5Gi"), volume("v3", "a", "3Gi"),
        volume("v1", "a", "1Gi")], {"a"}, {"c": "v3"}),
    Case("volume without node affinity", [storage_class(), volume_claim("c"), volume("v")], {"a", "b"}, {"c": "v"}),
    Case("volume of a zone", [
        storage_class(), volume_claim("c"), volume("v", nodeAffinity={"required": within("zone", "z2")})],
        {"b"}, {"c": "v"}),
    Case("no volume is large enough", [storage_class(), volume_claim("c", "2Gi"), volume("v", "a")], set(),
         message=refused(f"2 {NO_MATCH}")),
    Case("other class", [storage_class(), volume_claim("c"), volume("v", "a", class_name="x")], set(),
         message=refused(f"2 {NO_MATCH}")),
    Case("class by the beta annotation", [
        storage_class(), volume_claim("c"),
        {**volume("v", "a", class_name=""), "metadata": {
            "name": "v", "annotations": {"volume.beta.kubernetes.io/storage-class": LOCAL}}}],
        {"a"}, {"c": "v"}),
    Case("access mode that the volume lacks", [
        storage_class(), volume_claim("c", accessModes=["ReadWriteMany"]), volume("v", "a")], set(),
        message=refused(f"2 {NO_MATCH}")),
    Case("volume mode", [storage_class(), volume_claim("c", volumeMode="Block"), volume("v", "a"),
         volume("w", "b", volumeMode="Block")], {"b"}, {"c": "w"}),
    Case("attributes class", [storage_class(), volume_claim("c", volumeAttributesClassName="gold"), volume("v", "a"),
         volume("w", "b", volumeAttributesClassName="gold")], {"b"}, {"c": "w"}),
    Case("selector", [
        storage_class(), volume_claim("c", selector={"matchLabels": {"disk": "ssd"}}), volume("v", "a"),
        volume("w", "b", labels={"disk": "ssd"})], {"b"}, {"c": "w"}),
    Case("volume that is not available yet", [storage_class(), volume_claim("c"), volume("v", "a", phase="Pending")],
         set(), message=refused(f"2 {NO_MATCH}")),
    Case("volume of another claim", [
        storage_class(), volume_claim("c"), volume("v", "a", claim=volume_claim("other"))], set(),
        message=refused(f"2 {NO_MATCH}")),
    Case("volume that is being deleted", [
        storage_class(), volume_claim("c"),
        {**volume("v", "a"), "metadata": {"name": "v", "deletionTimestamp": "2026-11-20T10:00:00Z"}}], set(),
        message=refused(f"2 {NO_MATCH}")),
    Case("volume reserved for the claim comes first, whatever its phase and labels", [
        storage_class(), volume_claim("c", selector={"matchLabels": {"disk": "ssd"}}), volume("v", "a"),
        volume("w", "b", "9Gi", phase="Pending", claim=volume_claim("c"))], {"b"}, {"c": "w"}),
    Case("two claims of a pod take two volumes", [
        storage_class(), volume_claim("c"), volume_claim("d"), volume("v", "a"), volume("w", "a"), volume("x", "b")],
        {"a"}, {"c": "v", "d": "w"}, claims=("c", "d")),
    Case("a selective claim gets the volume that the other claim would have taken first", [
        storage_class(), volume_claim("c", "1Gi"), volume_claim("d", "2Gi", selector={"matchLabels": {"disk": "ssd"}}),
        volume("v", "a", "2Gi", labels={"disk": "ssd"}), volume("w", "a", "3Gi")],
        {"a"}, {"c": "w", "d": "v"}, claims=("c", "d")),
    Case("dynamic provisioning", [DYNAMIC, volume_claim("c", class_name=FAST)], {"a", "b"}, {"c": ""}),
    Case("an available volume before a provisioned one", [
        DYNAMIC, volume_claim("c", class_name=FAST), volume("v", class_name=FAST)], {"a", "b"}, {"c": "v"}),
    Case("allowed topologies", [
        {**DYNAMIC, "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["z2"]}]}]},
        volume_claim("c", class_name=FAST)], {"b"}, {"c": ""}),
    Case("an allowed topology without expressions matches nothing", [
        {**DYNAMIC, "allowedTopologies": [{}]}, volume_claim("c", class_name=FAST)], set(),
        message=refused(f"2 {NO_MATCH}")),
    Case("storage capacity", [
        DYNAMIC, csi_driver(), volume_claim("c", "5Gi", FAST), csi_capacity("a", {"matchLabels": {HOSTNAME: "a"}}),
        csi_capacity("b", {"matchLabels": {HOSTNAME: "b"}}, "4Gi")], {"a"}, {"c": ""}),
    Case("storage capacity: no node has enough", [
        DYNAMIC, csi_driver(), volume_claim("c", "50Gi", FAST), csi_capacity("a", {})], set(),
        message=refused(f"2 {NO_SPACE}")),
    Case("storage capacity: the maximum volume size counts", [
        DYNAMIC, csi_driver(), volume_claim("c", "5Gi", FAST),
        csi_capacity("a", {"matchLabels": {HOSTNAME: "a"}}, maximumVolumeSize="4Gi"),
        csi_capacity("b", {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z2"]}]})],
        {"b"}, {"c": ""}),
    Case("storage capacity: not reachable without a topology, of another class", [
        DYNAMIC, csi_driver(), volume_claim("c", "5Gi", FAST), csi_capacity("a", None),
        csi_capacity("b", {}, class_name="x")], set(), message=refused(f"2 {NO_SPACE}")),
    Case("storage capacity is not asked where the driver does not track it", [
        DYNAMIC, csi_driver(storage_capacity=False), volume_claim("c", "50Gi", FAST)], {"a", "b"}, {"c": ""}),
    Case("claim that is being provisioned for a node", [DYNAMIC, volume_claim("c", class_name=FAST, selected="b")],
         {"b"}, {"c": ""}),
    Case("claim that is being provisioned for a node that is gone", [
        DYNAMIC, volume_claim("c", class_name=FAST, selected="x")], set(), message=refused(f"2 {NO_MATCH}")),
    Case("bound claim follows its volume", [
        storage_class(), volume_claim("c", bound="v"), volume("v", "b", claim=volume_claim("c"), phase="Bound")],
        {"b"}),
    Case("bound claim whose volume is gone", [storage_class(), volume_claim("c", bound="v")], set(),
         message='0/2 nodes are available: persistentvolume "v" not found.'),
    Case("a bound and an unbound claim on different nodes: two reasons for one node", [
        storage_class(), volume_claim("c", bound="v"), volume("v", "a", claim=volume_claim("c"), phase="Bound"),
        volume_claim("d"), volume("w", "b")], set(), claims=("c", "d"),
        message=refused(f"1 {NO_MATCH}", f"1 {NO_REACH}")),
    Case("immediate binding is not done here", [
        storage_class(volumeBindingMode="Immediate"), volume_claim("c"), volume("v", "a")], set(), message=UNBOUND),
    Case("claim without a class", [volume_claim("c", class_name=""), volume("v", "a", class_name="")], set(),
         message=UNBOUND),
    Case("claim that asks for a volume by name and is not bound", [
        storage_class(), volume_claim("c", volumeName="v"), volume("v", "a")], set(), message=UNBOUND),
    Case("a missing claim is told before an unbound one", [storage_class(volumeBindingMode="Immediate"),
         volume_claim("c")], set(), claims=("c", "d"),
         message='0/2 nodes are available: persistentvolumeclaim "d" not found.'),
]  # fmt: skip


def cluster_of(*objects: Obj) -> SchedulerCache:
    return SchedulerCache.of(objects)


def placements(case: Case) -> Iterator[tuple[str, MemberDecision | None, str]]:
    """The decision when only one node is free for the pod."""
    for name in ("a", "b"):
        one = pod("p", volumes=uses(*case.claims), nodeSelector={HOSTNAME: name})
        decision = decide_all([*NODES, *case.objects, one])
        yield name, decision.placed[0] if decision.placed else None, decision.message


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_pod_with_volume_claims_gets_the_nodes_that_serve_them(case: Case) -> None:
    found = {name: member for name, member, _ in placements(case) if member is not None}
    assert found.keys() == case.nodes
    one = pod("p", volumes=uses(*case.claims))
    decision = decide_all([*NODES, *case.objects, one])
    assert decision.message == case.message
    for member in decision.placed:
        assert {binding.claim_name: binding.volume for binding in member.volumes} == case.bindings
        assert all(binding.claim_uid == f"uid-{binding.claim_name}" for binding in member.volumes)


def test_volumes_are_told_of_before_devices_that_no_node_can_have() -> None:
    objects = [*NODES, storage_class(volumeBindingMode="Immediate"), volume_claim("c"), claim("own")]
    assert "device class gpu does not exist" in decide_all([*objects, pod("q", claims=["own"])]).message
    decision = decide_all([*objects, pod("p", volumes=uses("c"), claims=["own"])])
    assert (decision.message, decision.members[0].plugins) == (UNBOUND, ("VolumeBinding",))


def test_volume_of_an_ephemeral_claim_is_missed_on_each_node_and_may_be_of_any_zone() -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
    claim, zone = volume_claim("p-scratch", bound="v"), {"topology.kubernetes.io/zone": "z1"}
    claim["metadata"]["ownerReferences"] = [owner]
    one = pod("p", volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": claim["spec"]}}}])
    one["metadata"]["uid"] = "uid-p"
    elsewhere = node("a", labels={"topology.kubernetes.io/zone": "z2"})
    assert decide_all([elsewhere, claim, one]).message == f"0/1 nodes are available: 1 {GONE}."
    assert decide_all([elsewhere, claim, volume("v", claim=claim, phase="Bound", labels=zone), one]).placed


def test_claim_for_one_pod_is_taken_over_where_its_user_is_and_victims_are_looked_for_elsewhere_too() -> None:
    sole = volume_claim("c", bound="v", accessModes=["ReadWriteOncePod"])
    cluster = [*NODES, sole, volume("v", claim=sole, phase="Bound")]
    user = pod("user", node="a", priority=1, volumes=uses("c"))
    evicted = decide_all([*cluster, user, pod("p", priority=2, volumes=uses("c"))], preempt_for_pods=True)
    assert (evicted.members[0].node, [one.pod.name for one in evicted.evictions]) == ("a", ["user"])
    message = decide_all([*cluster, user, pod("p", priority=1, volumes=uses("c"))], preempt_for_pods=True).message
    assert message.endswith("preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod.")


def test_pod_without_volume_binding_in_its_profile_is_placed_without_bindings() -> None:
    profile = replace(DEFAULT_PROFILE, filters=DEFAULT_PROFILE.filters - {"VolumeBinding"})
    decision = decide_all([*NODES, storage_class(), volume_claim("c"), pod("p", volumes=uses("c"))], profile=profile)
    assert decision.status == "scheduled"
    assert decision.placed[0].volumes == ()


def gang(*claims: str, least: int | None = None) -> list[Obj]:
    """One member for each claim."""
    members = [pod(f"p{i}", group="g", volumes=uses(claim)) for i, claim in enumerate(claims)]
    return [pod_group("g", least or len(members)), *members]


def test_members_of_a_gang_never_share_a_volume() -> None:
    claims = [volume_claim("c0"), volume_claim("c1")]
    short = decide_all([*NODES, storage_class(), *claims, volume("v", "a"), *gang("c0", "c1")], "g")
    assert short.status == "unschedulable"
    both = decide_all([*NODES, storage_class(), *claims, volume("v", "a"), volume("w", "b"), *gang("c0", "c1")], "g")
    assert {m.pod.name: (m.node, m.volumes[0].volume) for m in both.placed} in (
        {"p0": ("a", "v"), "p1": ("b", "w")},
        {"p0": ("b", "w"), "p1": ("a", "v")},
    )


def test_gang_is_placed_without_the_member_for_whose_claim_no_volume_is_left() -> None:
    """Its quorum does without it."""
    made = [node("a"), storage_class(), pod_group("g", 1), volume("v"), volume_claim("first"), volume_claim("second")]
    made += [pod(name, group="g", volumes=uses(name)) for name in ("first", "second")]
    decision = decide_all(made, "g")
    assert [member.status for member in decision.members] == ["scheduled", "unschedulable"]
    assert [[bound.volume for bound in member.volumes] for member in decision.members] == [["v"], []]


def test_member_leaves_its_volume_to_one_that_can_use_no_other() -> None:
    selective = volume_claim("c1", selector={"matchLabels": {"disk": "ssd"}})
    volumes = [volume("v", size="1Gi", labels={"disk": "ssd"}), volume("w", size="2Gi")]
    found = decide_all([*NODES, storage_class(), volume_claim("c0"), selective, *volumes, *gang("c0", "c1")], "g")
    assert {m.pod.name: m.volumes[0].volume for m in found.placed} == {"p0": "w", "p1": "v"}


def test_member_has_its_volume_provisioned_where_another_one_needs_the_available_one() -> None:
    objects = [DYNAMIC, volume_claim("c0", class_name=FAST), volume("v", class_name=FAST)]
    pinned = volume_claim("c1", class_name=FAST)
    no_space = [csi_driver(), csi_capacity("a", {"matchLabels": {HOSTNAME: "a"}})]
    members = [
        pod_group("g", 2),
        pod("p0", group="g", volumes=uses("c0"), nodeSelector={HOSTNAME: "a"}),
        pod("p1", group="g", volumes=uses("c1"), nodeSelector={HOSTNAME: "b"}),
    ]
    found = decide_all([*NODES, *objects, pinned, *no_space, *members], "g")
    assert {m.pod.name: m.volumes[0].volume for m in found.placed} == {"p0": "", "p1": "v"}


def test_members_that_share_a_claim_are_together_where_its_volume_is_provisioned() -> None:
    small = [node("a", cpu="1"), node("b", cpu="2")]
    found = decide_all([*small, DYNAMIC, volume_claim("c", class_name=FAST), *gang("c", "c")], "g")
    assert {m.node for m in found.placed} == {"b"}
    apart = decide_all([node("a", cpu="1"), node("b", cpu="1"), DYNAMIC, volume_claim("c", class_name=FAST),
                        *gang("c", "c")], "g")  # fmt: skip
    assert apart.status == "unschedulable"


def test_second_decision_does_not_take_the_assumed_volume() -> None:
    objects = [*NODES, storage_class(), volume_claim("c0"), volume_claim("c1"), volume("v", "a")]
    pods = [pod(f"p{i}", volumes=uses(f"c{i}")) for i in range(2)]
    cluster = cluster_of(*objects, *pods)
    first = decide(cluster.snapshot(), pods[:1], group=None, options=options())
    for obj in assumed_objects(cluster.snapshot(), first.placed):
        cluster.assume_volume(obj)
    second = decide(cluster.snapshot(), pods[1:], group=None, options=options())
    assert (first.status, second.status) == ("scheduled", "unschedulable")
    cluster.forget_volume("PersistentVolume", "v")
    assert decide(cluster.snapshot(), pods[1:], group=None, options=options()).status == "scheduled"


def test_assumed_volume_counts_until_the_watch_shows_whose_it_is() -> None:
    claim, free = volume_claim("c"), volume("v", "a")
    cluster = cluster_of(*NODES, storage_class(), claim, free)
    assumed = volume("v", "a", claim=claim)
    cluster.assume_volume(assumed)
    relabelled = volume("v", "a", labels={"x": "y"})
    cluster.apply(relabelled)
    assert cluster.snapshot().objects("PersistentVolume")["v"] is assumed
    written = volume("v", "a", claim=claim, phase="Bound")
    cluster.apply(written)
    assert cluster.snapshot().objects("PersistentVolume")["v"] is written
    cluster.forget_volume("PersistentVolume", "v")
    assert cluster.snapshot().objects("PersistentVolume")["v"] is written


def test_round_gives_each_pod_a_volume_of_its_own() -> None:
    claims = [volume_claim(f"c{i}") for i in range(3)]
    pods = [pod(f"p{i}", volumes=uses(f"c{i}")) for i in range(3)]
    cluster = cluster_of(*NODES, storage_class(), *claims, volume("v", "a"), volume("w", "b"), *pods)
    result = run_round(cluster, options())
    assert len(result.bindings) == 2
    owners = [v["spec"]["claimRef"]["name"] for v in cluster.snapshot().objects("PersistentVolume").values()]
    assert len(set(owners)) == 2


# -- against a plain search -------------------------------------------------------------------------------------------

NAMES = ("a", "b", "c")


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[Obj], list[Obj]]:
    """A cluster of three nodes with volumes, and the members of a gang with their claims."""
    nodes = [node(name, labels={"zone": f"z{i % 2}"}) for i, name in enumerate(NAMES)]
    topologies = draw(st.sampled_from([[], [{"matchLabelExpressions": [{"key": "zone", "values": ["z1"]}]}]]))
    classes = [storage_class(), storage_class(FAST, PROVISIONER, allowedTopologies=topologies)]
    objects: list[Obj] = [*nodes, *classes]
    if draw(st.booleans()):
        objects.append(csi_driver())
        for name in draw(st.sets(st.sampled_from(NAMES))):
            objects.append(csi_capacity(name, {"matchLabels": {HOSTNAME: name}}, draw(st.sampled_from(["1Gi", "2Gi"]))))
    pods: list[Obj] = []
    paths: list[str] = []
    for i in range(draw(st.integers(1, 3))):
        mine: list[str] = []
        for j in range(draw(st.integers(1, 2))):
            if paths and draw(st.integers(0, 4)) == 0:
                mine.append(draw(st.sampled_from(paths)))
                continue
            name = f"c{i}{j}"
            selector = draw(st.sampled_from([None, None, {"matchLabels": {"disk": "ssd"}}]))
            extra: dict[str, Any] = {"selector": selector} if selector else {}
            class_name = draw(st.sampled_from([LOCAL, LOCAL, FAST]))
            selected = draw(st.sampled_from(["", "", "", "a"])) if class_name == FAST else ""
            size = draw(st.sampled_from(["1Gi", "2Gi"]))
            objects.append(volume_claim(name, size, class_name, selected=selected, **extra))
            mine.append(name)
            paths.append(name)
        pods.append(pod(f"p{i}", group="g", volumes=uses(*dict.fromkeys(mine))))
    claims = {obj["metadata"]["name"]: obj for obj in objects if obj["kind"] == "PersistentVolumeClaim"}
    for i in range(draw(st.integers(0, 4))):
        where = draw(st.sampled_from([*NAMES, "zone", ""]))
        extra = {"nodeAffinity": {"required": within("zone", "z0")}} if where == "zone" else {}
        owner = claims[draw(st.sampled_from(paths))] if draw(st.integers(0, 5)) == 0 else None
        labels = draw(st.sampled_from([{}, {"disk": "ssd"}]))
        class_name = draw(st.sampled_from([LOCAL, LOCAL, FAST]))
        size = draw(st.sampled_from(["1Gi", "2Gi"]))
        place = where if where in NAMES else ""
        objects.append(volume(f"v{i}", place, size, class_name, labels=labels, claim=owner, **extra))
    return objects, pods


class PlainSearch:
    """Try every node for every pod, and every volume for every claim."""

    def __init__(self, objects: Sequence[Obj]) -> None:
        self.by_kind: dict[str, dict[str, Obj]] = {}
        for obj in objects:
            self.by_kind.setdefault(obj["kind"], {})[obj["metadata"]["name"]] = obj

    def fits(self, pods: Sequence[Obj]) -> bool:
        return any(
            self.serves(dict(zip([p["metadata"]["name"] for p in pods], where, strict=True)), pods)
            for where in itertools.product(NAMES, repeat=len(pods))
        )

    def serves(self, where: dict[str, str], pods: Sequence[Obj]) -> bool:
        users: dict[str, set[str]] = {}
        for one in pods:
            for source in one["spec"]["volumes"]:
                name = source["persistentVolumeClaim"]["claimName"]
                users.setdefault(name, set()).add(where[one["metadata"]["name"]])
        return self._assign(sorted(users), users, frozenset())

    def _assign(self, left: list[str], users: dict[str, set[str]], taken: frozenset[str]) -> bool:
        if not left:
            return True
        claim, rest = self.by_kind["PersistentVolumeClaim"][left[0]], left[1:]
        for name, offered in self.by_kind.get("PersistentVolume", {}).items():
            free = name not in taken and self.is_usable(offered, claim, users[left[0]])
            if free and self._assign(rest, users, taken | {name}):
                return True
        return self.can_provision(claim, users[left[0]]) and self._assign(rest, users, taken)

    def is_usable(self, offered: Obj, claim: Obj, nodes: set[str]) -> bool:
        if claim["metadata"]["annotations"] or not self._matches(offered, claim):
            return False
        reserved = [
            v
            for v in self.by_kind["PersistentVolume"].values()
            if self._owner(v) == claim["metadata"]["name"] and self._suffices(v, claim)
        ]
        if reserved and offered is not min(reserved, key=lambda v: v["metadata"]["name"]):
            return False
        affinity = (offered["spec"].get("nodeAffinity") or {}).get("required")
        labels = {name: self.by_kind["Node"][name]["metadata"]["labels"] for name in nodes}
        return affinity is None or all(node_selector_matches(affinity, name, labels[name]) for name in nodes)

    def _owner(self, offered: Obj) -> str:
        return str((offered["spec"].get("claimRef") or {}).get("name", ""))

    def _suffices(self, offered: Obj, claim: Obj) -> bool:
        size, wanted = offered["spec"]["capacity"]["storage"], claim["spec"]["resources"]["requests"]["storage"]
        return bool(size >= wanted) and offered["spec"]["storageClassName"] == claim["spec"]["storageClassName"]

    def _matches(self, offered: Obj, claim: Obj) -> bool:
        if not self._suffices(offered, claim):
            return False
        if self._owner(offered):
            return self._owner(offered) == claim["metadata"]["name"]
        selector = (claim["spec"].get("selector") or {}).get("matchLabels", {})
        return bool(selector.items() <= offered["metadata"]["labels"].items())

    def can_provision(self, claim: Obj, nodes: set[str]) -> bool:
        selected = claim["metadata"]["annotations"].get("volume.kubernetes.io/selected-node")
        if claim["spec"]["storageClassName"] != FAST or len(nodes) != 1 or (selected and nodes != {selected}):
            return False
        (name,) = nodes
        labels = self.by_kind["Node"][name]["metadata"]["labels"]
        topologies = self.by_kind["StorageClass"][FAST]["allowedTopologies"]
        if topologies and labels["zone"] != "z1":
            return False
        if "CSIDriver" not in self.by_kind:
            return True
        capacity = self.by_kind.get("CSIStorageCapacity", {}).get(name)
        return capacity is not None and capacity["capacity"] >= claim["spec"]["resources"]["requests"]["storage"]


@settings(max_examples=150, deadline=None)
@given(situations())
def test_gang_with_volumes_is_placed_exactly_if_a_plain_search_finds_places(situation: Any) -> None:
    objects, pods = situation
    plain = PlainSearch(objects)
    decision = decide_all([*objects, pod_group("g", len(pods)), *pods], "g")
    assert decision.status in ("scheduled", "unschedulable")
    assert (decision.status == "scheduled") == plain.fits(pods)
    if decision.status == "scheduled":
        where = {member.pod.name: member.node or "" for member in decision.placed}
        assert len(where) == len(pods)
        by_claim = {binding.claim_name: binding.volume for member in decision.placed for binding in member.volumes}
        given_out = [name for name in by_claim.values() if name]
        assert len(given_out) == len(set(given_out))
        users: dict[str, set[str]] = {}
        for member in decision.placed:
            for binding in member.volumes:
                assert binding.volume == by_claim[binding.claim_name]
                users.setdefault(binding.claim_name, set()).add(where[member.pod.name])
        for name, chosen in by_claim.items():
            claim = plain.by_kind["PersistentVolumeClaim"][name]
            if chosen:
                assert plain.is_usable(plain.by_kind["PersistentVolume"][chosen], claim, users[name])
            else:
                assert plain.can_provision(claim, users[name])


def test_volume_in_a_manifest_is_available_and_a_claim_that_names_one_is_bound() -> None:
    free, claim, named = volume("v", "a", phase="Pending"), volume_claim("c"), volume_claim("d", volumeName="w")
    other = volume("w", "a", phase="Pending")
    for obj in (free, claim, named, other):
        del obj["metadata"]["resourceVersion"]
    one = pod("p", volumes=uses("c", "d"))
    decision = decide_all([*NODES, storage_class(), free, claim, named, other, one])
    assert [(binding.claim_name, binding.volume) for binding in decision.placed[0].volumes] == [("c", "v")]


@pytest.mark.parametrize(("there", "wanted", "fits"), [((), "v1", True), (("v1",), "v1", True), (("v1",), "v2", False)])
def test_attached_volume_counts_once_against_the_limit_of_its_node(
    there: Sequence[str], wanted: str, fits: bool
) -> None:
    asked, volumes = pod("p", volumes=uses("c")), map(csi_volume, ("v1", "v2"))
    objects = [node("a"), storage_class(), *volumes, volume_claim("c", bound=wanted), volume_limit("a", 1), asked]
    snapshot = SchedulerCache.of([*objects, *(attachment(name, "a") for name in there)]).snapshot()
    found = decide(snapshot, [asked], group=None, options=options())
    assert (found.status == "scheduled") == fits
    assert fits or "1 node(s) exceed max volume count" in found.message
