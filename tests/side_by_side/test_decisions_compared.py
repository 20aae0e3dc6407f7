"""The comparison of decisions: what does not count, what is known, and that random cases are made again from a seed."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from decided_cluster import alike
from decision_verdicts import Outcome, Placement, devices_of, differences, plain
from decisions_compared import main
from engine_outcomes import ALPHA_GATES, decisions, outcome_of
from manifests import Obj
from random_clusters import ALPHA_DIMENSIONS, DIMENSIONS, ChangeDraw, ClusterDraw, drawn_dimensions
from random_work import WorkDraw

from nights import tonight

EVERYTHING = frozenset((*DIMENSIONS, *ALPHA_DIMENSIONS))


def one(node: str = "", message: str = "", nominated: str = "") -> dict[str, Placement]:
    return {"p": Placement(node, message, nominated)}


@pytest.mark.parametrize(
    ("seen", "expected", "found"),
    [
        (Outcome(one("n0")), Outcome(one("n0")), ()),
        (Outcome(one("n0")), Outcome(one("n1")), ("node",)),
        (Outcome(one("n0")), Outcome(one("", "0/1 nodes are available: 1 Too many pods.")), ("bound", "node")),
        (Outcome(one("", "no", "n0"), ["v"]), Outcome(one("", "no", "n0"), ["v"]), ()),
        (Outcome(one("", "no", "n0"), ["v"]), Outcome(one("", "no", "n0"), ["w"]), ("victims",)),
        (Outcome(one("", "no", "n0"), ["v"]), Outcome(one("", "no", "n1"), ["v"]), ("nominated",)),
        (Outcome(one("", "a. not found", "n0")), Outcome(one("", "a", "")), ()),
        (Outcome(one("", "0/1 nodes: a.")), Outcome(one("", "0/1 nodes: b.")), ("message",)),
        (
            Outcome(one("", "0/1: a. still not schedulable, preemption: no")),
            Outcome(one("", "0/1: a. still not schedulable, preemption: never")),
            ("words of preemption",),
        ),
        (
            Outcome(one("", "0/1: cannot allocate all claims. still not schedulable, preemption: no")),
            Outcome(one("", "0/1: cannot allocate all claims. still not schedulable, preemption: never")),
            ("summary",),
        ),
        (
            Outcome(one("", "0/1: cannot allocate all claims. still not schedulable, preemption: no")),
            Outcome(one("", "0/1: cannot allocate all claims. preemption: claim d/c: selector #0: no such key: numa")),
            ("summary",),
        ),
        (
            Outcome(one("", "0/3: 1 Too many pods, 2 cannot allocate all claims.")),
            Outcome(
                one(
                    "",
                    "0/3: 1 Too many pods, 1 cannot allocate all claims, 1 resourceclaim not available on the node.",
                )
            ),
            ("asked first",),
        ),
        (
            Outcome(one("", "0/3: 1 Too many pods, 2 cannot allocate all claims.")),
            Outcome(one("", "0/3: 3 resourceclaim not available on the node.")),
            ("message",),
        ),
        (
            Outcome(one("", "0/1: a. not found")),
            Outcome(one("", "0/1: a. no new claims to deallocate, preemption: never")),
            ("summary",),
        ),
        (
            Outcome(one("n0"), devices={"c": [("r", "d0")]}),
            Outcome(one("n0"), devices={"c": [("r", "d1")]}),
            ("devices",),
        ),
        (Outcome(one("n0"), volumes={"c": "pv0"}), Outcome(one("n0"), volumes={"c": "pv1"}), ("volumes",)),
    ],
)
def test_difference_has_a_name(seen: Outcome, expected: Outcome, found: tuple[str, ...]) -> None:
    assert differences(seen, [expected], grouped=False) == found


def test_any_of_several_right_outcomes_will_do() -> None:
    ties = [Outcome(one("n0")), Outcome(one("n1"))]
    assert differences(Outcome(one("n1")), ties, grouped=False) == ()
    assert differences(Outcome(one("n2")), ties, grouped=False) == ("node",)


def test_members_of_a_gang_may_change_places_and_more_of_them_may_be_bound() -> None:
    first, second = Placement("n0"), Placement("n1")
    seen = Outcome({"a": first, "b": second})
    assert differences(seen, [Outcome({"a": second, "b": first})], grouped=True) == ()
    assert differences(Outcome({"a": first, "b": Placement("", "no")}), [seen], grouped=True) == ("more members",)
    assert differences(seen, [Outcome({"a": first, "b": Placement("", "no")})], grouped=True) == ("bound", "nodes")


def test_message_of_a_moment_is_not_compared_while_places_are_promised() -> None:
    assert differences(Outcome(one("", "a")), [Outcome(one("", "b"))], grouped=False, promised=True) == ()


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("create claim: exceeded quota: q", "quota"),
        ("nil or empty request mappings, no update", "mappings"),
    ],
)
def test_binding_that_fails_has_a_known_cause(message: str, cause: str) -> None:
    assert differences(Outcome(one("", message)), [Outcome(one("n0"))], grouped=False) == (cause,)


def test_words_that_differ_on_purpose_do_not_count() -> None:
    ours = "claim d/c: selector #0: CEL runtime error"
    assert plain(f'running "DynamicResources" filter plugin: {ours}') == plain(ours)
    assert plain(f"failed to schedule other pod from a pod group: {ours}", grouped=True) == plain(ours, grouped=True)
    behind = "still not schedulable, preemption: not eligible due to workload aware preemption enabled"
    assert plain(f"0/1 nodes are available. {behind}", grouped=True) == "0/1 nodes are available"
    assert plain("pod group is unschedulable", grouped=True) == plain("waiting for minCount pods", grouped=True)


def test_devices_are_compared_in_any_order_and_without_identifiers_of_shares() -> None:
    results: list[Obj] = [{"request": "r", "pool": "p", "device": name, "shareID": name} for name in ("b", "a")]
    other = [{**result, "shareID": "x"} for result in reversed(results)]
    assert devices_of({"devices": {"results": results}}) == devices_of({"devices": {"results": other}})
    assert devices_of(None) == []


def test_refusals_are_alike_if_they_are_the_same_or_name_different_quotas() -> None:
    first, other = (f'pods "p" is forbidden: exceeded quota: {name}, requested: pods=1' for name in ("q0", "q1"))
    assert alike([first, first]) and alike([first, other]) and alike(["", ""])
    assert not alike([first, ""]) and not alike([first, f"{first}, used: pods=0"])


def drawn(seed: int) -> list[Obj]:
    cluster = ClusterDraw(random.Random(seed), EVERYTHING, f"s{seed}")
    work = WorkDraw(cluster)
    found = [*cluster.quotas(), *cluster.nodes(), *cluster.devices()]
    found += cluster.running(lambda: work.spec(bound=True))
    unit = work.unit(0)
    return [*found, *unit.templates, *unit.claims, *([unit.group] if unit.group else []), *unit.pods]


def test_seed_makes_the_same_cluster_and_work_again() -> None:
    assert drawn(3) == drawn(3) != drawn(4)
    kinds = {made["kind"] for seed in range(20) for made in drawn(seed)}
    assert {
        "Node",
        "ResourceSlice",
        "ResourceQuota",
        "PodGroup",
        "ResourceClaimTemplate",
        "Pod",
        "PersistentVolumeClaim",
    } < kinds
    assert {name for seed in range(40) for name in drawn_dimensions(random.Random(seed), alpha=True)} == EVERYTHING


def test_engine_decides_whatever_is_drawn() -> None:
    for seed in range(10):
        cluster = ClusterDraw(random.Random(seed), EVERYTHING, f"s{seed}")
        objects = [*cluster.nodes(), *cluster.devices()]
        unit = WorkDraw(cluster).unit(0)
        for made in unit.pods:
            made["spec"].pop("schedulingGates", None)
            made["spec"] |= unit.released
        pods = [stored(made, number) for number, made in enumerate(unit.pods)]
        group = stored(unit.group, 9) if unit.group else None
        claims = [stored(made, number + 10) for number, made in enumerate(unit.claims)]
        world = [*objects, *claims, *pods, *([group] if group else [])]
        for decision in decisions(world, pods, group, ALPHA_GATES, ties=3):
            assert outcome_of(decision).pods.keys() == {made["metadata"]["name"] for made in pods}


def stored(made: Obj, number: int) -> Obj:
    meta = {**made["metadata"], "namespace": "side-by-side", "uid": f"{made['kind']}-{number}"}
    return {**made, "metadata": {**meta, "creationTimestamp": "2026-01-01T00:00:00Z"}}


def test_changes_are_of_nodes_pods_and_slices() -> None:
    cluster = ClusterDraw(random.Random(1), EVERYTHING, "s1")
    world = [*cluster.nodes(), *cluster.devices()]
    changes = ChangeDraw(cluster)
    found = [changes.change(world) for _ in range(60)]
    assert {verb for verb, _ in found} == {"create", "update", "delete"}
    assert {made["kind"] for _, made in found} == {"Node", "ResourceSlice"}
    names = [made["metadata"]["name"] for verb, made in found if verb == "create"]
    assert len(set(names)) == len(names)


def test_claim_whose_users_are_gone_is_deallocated() -> None:
    cluster = ClusterDraw(random.Random(1), EVERYTHING, "s1")
    user = {"resource": "pods", "name": "p", "uid": "u"}
    claim: Obj = {"kind": "ResourceClaim", "status": {"allocation": {"devices": {}}, "reservedFor": [user]}}
    pod: Obj = {"kind": "Pod", "metadata": {"name": "p", "uid": "u"}, "spec": {"nodeName": "n"}}
    changes = ChangeDraw(cluster)
    for world, found in (([claim], True), ([claim, pod], False)):
        drawn = [changes.change([*cluster.nodes(), *world]) for _ in range(40)]
        assert (("update", {"kind": "ResourceClaim", "status": {}}) in drawn) is found


@pytest.mark.nightly
@pytest.mark.host
def test_random_work_is_decided_as_by_kube_scheduler() -> None:
    programs = [shutil.which(name) for name in ("kube-apiserver", "kube-scheduler")]
    if not programs[0] or not programs[1]:
        pytest.skip("kube-apiserver and kube-scheduler 1.36 are not on PATH")
    seeds = tonight(range(12))
    assert main([f"--kubernetes={Path(programs[0]).parent}", f"--seed={seeds.start}", f"--count={len(seeds)}"]) == 0
