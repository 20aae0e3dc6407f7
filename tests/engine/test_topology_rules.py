"""Spreading and company inside a domain: the rules are those of the whole cluster.

While 1.36 tries a domain its plugins see the nodes of that domain only; see docs/differences.md.
"""

from __future__ import annotations

from typing import Any

from engine_objects import Obj, decide_all
from topology_objects import gang, rack, rack_of, racks_of, runs

ZONE = "topology.kubernetes.io/zone"


def zoned(objects: list[Obj], **zones: str) -> list[Obj]:
    for obj in objects:
        if obj["kind"] == "Node":
            obj["metadata"]["labels"][ZONE] = zones[rack_of(obj["metadata"]["name"])]
    return objects


def labelled(objects: list[Obj], **spec: Any) -> list[Obj]:
    for obj in objects:
        if obj["kind"] == "Pod":
            obj["metadata"]["labels"]["team"] = "x"
            obj["spec"].update(spec)
    return objects


def rule(key: str) -> Obj:
    selector = {"matchLabels": {"app": "other"}}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": selector, "topologyKey": key}]}


def spreading(**more: Any) -> list[Obj]:
    selector = {"matchLabels": {"team": "x"}}
    return [
        {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector, **more}
    ]


def test_topology_spread_is_evaluated_in_whole_cluster() -> None:
    """1.36 sees one zone in a rack and calls it even; two members more in one of two zones are not."""
    objects = zoned([*rack("a", 4), *rack("b", 4)], a="z1", b="z2")
    work = labelled(gang("g", 2), topologySpreadConstraints=spreading())
    assert decide_all([*objects, *work], "g").status == "unschedulable"
    # One rack that has nodes in both zones can be even.
    even = zoned([*rack("a", 4), *rack("b", 4)], a="z1", b="z2")
    for obj in even[2:4]:
        obj["metadata"]["labels"][ZONE] = "z2"
    decision = decide_all([*even, *work], "g")
    assert racks_of(decision) == {"a"}
    # And so can a rack whose zone is behind: what runs elsewhere counts.
    outside = labelled([runs(f"r{i}", "b-0", cpu="0") for i in range(2)])
    assert racks_of(decide_all([*objects, *outside, *work], "g")) == {"a"}


def test_min_domains_counts_domains_of_whole_cluster() -> None:
    objects = zoned([*rack("a", 2), *rack("b", 2)], a="z1", b="z2")
    work = labelled(gang("g", 1), topologySpreadConstraints=spreading(minDomains=2))
    assert len(decide_all([*objects, *work], "g").placed) == 1


def test_pod_affinity_target_outside_rack_counts() -> None:
    """The zone has the pod that members want to be near, another rack of it has the room."""
    objects = zoned([*rack("a", 1, cpu="1"), *rack("b", 2), *rack("c", 2)], a="z1", b="z1", c="z2")
    company = runs("other", "a-0")
    work = gang("g", 2, affinity={"podAffinity": rule(ZONE)})
    for seed in range(4):
        assert racks_of(decide_all([*objects, company, *work], "g", seed=seed)) == {"b"}


def test_pod_anti_affinity_outside_rack_counts() -> None:
    """In both directions, by a label that is wider than the rack."""
    objects = zoned([*rack("a", 1), *rack("b", 2), *rack("c", 2)], a="z1", b="z1", c="z2")
    for seed in range(4):
        own = gang("g", 2, affinity={"podAntiAffinity": rule(ZONE)})
        assert racks_of(decide_all([*objects, runs("other", "a-0"), *own], "g", seed=seed)) == {"c"}
        selector = {"matchLabels": {"team": "x"}}
        term = {"labelSelector": selector, "topologyKey": ZONE}
        theirs = runs("hermit", "a-0", affinity={"podAntiAffinity": {**rule(ZONE)}})
        theirs["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = [term]
        assert racks_of(decide_all([*objects, theirs, *labelled(gang("g", 2))], "g", seed=seed)) == {"c"}
