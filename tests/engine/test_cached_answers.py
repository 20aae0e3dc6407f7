"""Caches between decisions change no decision: a cluster with a history decides like one that was just read."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from engine_objects import (
    DRIVER,
    Obj,
    claim,
    device_class,
    member_with_claim,
    node,
    options,
    pod,
    pod_group,
    resource_slice,
)

from haru.engine.equivalence.decision_cache import DecisionCache
from haru.engine.equivalence.filter_results import FilterResultCache
from haru.engine.podgroup import decide
from haru.engine.state.cache import SchedulerCache
from haru.engine.state.decision import Decision

RACK = "rack"
NODES = [f"n{i}" for i in range(6)]


class History:
    """A cluster to which things happen at random."""

    def __init__(self, seed: int, cluster: SchedulerCache | None = None) -> None:
        self.rng = random.Random(seed)
        self.cluster = SchedulerCache() if cluster is None else cluster
        self.cluster.apply(device_class())
        self.cluster.apply(device_class("big", [f"device.attributes['{DRIVER}'].size > 1"]))
        self.number = 0
        self.bound: list[tuple[Obj, list[Obj]]] = []
        for name in NODES[:4]:
            self.put_node(name)
            self.put_slice(name)

    def put_node(self, name: str) -> None:
        labels = self.rng.choice([{RACK: "a"}, {RACK: "a"}, {RACK: "b"}, {}])
        self.cluster.apply(node(name, cpu=str(self.rng.randint(1, 6)), labels=labels))

    def put_slice(self, name: str) -> None:
        sizes = [self.rng.randint(1, 2) for _ in range(self.rng.randint(0, 4))]
        own = self.rng.random() < 0.5
        devices: list[Obj] = [
            {"name": f"gpu-{i}", "attributes": {"size": {"int": s}, "id": {"string": f"{name}-{i}" if own else "x"}}}
            for i, s in enumerate(sizes)
        ]
        if self.rng.random() < 0.5:
            for entry in devices:
                entry["attributes"]["numa"] = {"int": self.rng.randint(0, 1)}
        slices = [resource_slice(name, devices)]
        how = self.rng.random()
        if how < 0.25:
            for entry in devices:
                entry["consumesCounters"] = [{"counterSet": "card", "counters": {"memory": {"value": "1"}}}]
            slices.append(resource_slice(name, []))
            slices[1]["metadata"]["name"] += "-counters"
            counters = {"memory": {"value": str(self.rng.randint(1, 3))}}
            slices[1]["spec"]["sharedCounters"] = [{"name": "card", "counters": counters}]
        elif how < 0.5:
            for entry in devices:
                entry |= {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "3"}}}
        self.cluster.remove({**slices[0], "metadata": {"name": f"slice-{name}-counters"}})
        for item in slices:
            item["spec"]["pool"]["resourceSliceCount"] = len(slices)
            self.cluster.apply(item)

    def step(self) -> None:
        what, name = self.rng.random(), self.rng.choice(NODES)
        if what < 0.15:
            self.put_node(name)
        elif what < 0.2:
            self.cluster.remove(node(name))
        elif what < 0.35:
            self.put_slice(name)
        elif what < 0.4:
            self.cluster.remove(resource_slice(name, 0))
        elif what < 0.45:
            size = self.rng.randint(0, 1)
            self.cluster.apply(device_class("big", [f"device.attributes['{DRIVER}'].size > {size}"]))
        elif what < 0.5:
            wide: Any = {"nodeSelectorTerms": [{"matchExpressions": [{"key": RACK, "operator": "Exists"}]}]}
            made = resource_slice("", self.rng.randint(0, 2), pool="wide", nodeSelector=wide)
            for entry in made["spec"]["devices"]:
                entry["attributes"] = {"size": {"int": 1}, "id": {"string": "w"}}
            self.cluster.apply(made)
        elif what < 0.7 and self.bound:
            gone, claims = self.bound.pop(self.rng.randrange(len(self.bound)))
            self.cluster.remove(gone)
            for obj in claims:
                self.cluster.remove(obj)

    def work(self) -> tuple[Obj, list[Obj]]:
        """A gang of some members, with claims of one kind or another, or none, and with a topology or none."""
        self.number += 1
        name, size = f"g{self.number}", self.rng.randint(1, 6)
        spec: Any = {"schedulingConstraints": {"topology": [{"key": RACK}]}} if self.rng.random() < 0.3 else {}
        objects = [pod_group(name, self.rng.randint(1, size), **spec)]
        kind, compares = self.rng.random(), self.rng.random() < 0.3
        if kind > 0.9:
            objects.append(claim(f"{name}-shared", 1))
        for i in range(size):
            if kind < 0.3:
                objects.append(pod(f"{name}-{i}", cpu="1", group=name))
                if kind < 0.1:
                    objects[-1]["spec"]["containers"][0]["ports"] = [{"hostPort": 80}]
            elif kind > 0.9:
                objects.append(pod(f"{name}-{i}", cpu="1", group=name, claims=[f"{name}-shared"]))
            else:
                made = member_with_claim(f"{name}-{i}", name, 1 + int(kind > 0.7), cpu="1")
                exact = made[1]["spec"]["devices"]["requests"][0]["exactly"]
                exact["deviceClassName"] = "big" if kind > 0.5 else "gpu"
                if compares:
                    made[1]["spec"]["devices"]["constraints"] = [{"matchAttribute": f"{DRIVER}/numa"}]
                if kind < 0.4:
                    exact["capacity"] = {"requests": {"memory": "1"}}
                objects += made
        for obj in objects:
            self.cluster.apply(obj)
        return objects[0], [obj for obj in objects if obj["kind"] == "Pod"]

    def enact(self, decision: Decision) -> None:
        for member in decision.placed if decision.status == "scheduled" else ():
            for given in member.allocations:
                held = self.cluster.snapshot().claims[given.path]
                status = {"allocation": given.allocation, "reservedFor": [given.reserve_for]}
                self.cluster.assume_claim({**held, "status": status}, written=True)
            self.cluster.assume_pod(member.pod, member.node or "")
            info = self.cluster.snapshot().pods[member.pod.path]
            claims = [self.cluster.snapshot().claims[given.path] for given in member.allocations]
            self.bound.append((info.obj, claims))


@pytest.mark.parametrize("seed", range(12))
def test_cluster_with_history_decides_like_fresh_cluster(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    history = History(seed)
    kept_some = False
    for number in range(14):
        group, pods = history.work()
        snapshot = history.cluster.snapshot()
        kept = decide(snapshot, pods, group=group, options=options(seed=number))
        fresh = decide(
            replace(snapshot, decision_cache=DecisionCache()), pods, group=group, options=options(seed=number)
        )
        assert kept == fresh
        with monkeypatch.context() as patched:
            # Each member for itself, without what is known of those that are alike.
            patched.setattr(FilterResultCache, "can_batch", lambda *_: False)
            apart = decide(
                replace(snapshot, decision_cache=DecisionCache()), pods, group=group, options=options(seed=number)
            )
        assert kept == apart
        kept_some = kept_some or kept.status == "scheduled"
        if history.rng.random() < 0.8:
            history.enact(kept)
        for obj in pods if kept.status != "scheduled" else ():
            history.cluster.remove(obj)
        for _ in range(history.rng.randint(0, 3)):
            history.step()
    assert kept_some


def test_caches_of_two_clusters_are_separate() -> None:
    """Decisions in turn on clusters that look alike and are not."""
    few = [device_class(), node("a"), resource_slice("a", 1), pod_group("g", 2)]
    many = [device_class(), node("a"), resource_slice("a", 2), pod_group("g", 2)]
    work = [obj for i in range(2) for obj in member_with_claim(f"m{i}", "g")]
    pods = [obj for obj in work if obj["kind"] == "Pod"]
    clusters = [SchedulerCache.of([*objects, *work]) for objects in (few, many)]
    for _ in range(3):
        found = [decide(c.snapshot(), pods, group=few[-1], options=options()).status for c in clusters]
        assert found == ["unschedulable", "scheduled"]


def test_decision_cache_shared_by_two_clusters_changes_nothing() -> None:
    """Notes compare what they have seen with what they are shown, wherever that comes from."""
    cache = DecisionCache()
    work = [obj for i in range(2) for obj in member_with_claim(f"m{i}", "g")]
    pods = [obj for obj in work if obj["kind"] == "Pod"]
    snapshots = [
        SchedulerCache.of([device_class(), node("a"), resource_slice("a", count), pod_group("g", 2), *work]).snapshot()
        for count in (1, 2, 0, 3)
    ]
    for snapshot in [*snapshots, *reversed(snapshots)]:
        group = snapshot.pod_groups["default/g"]
        kept = decide(replace(snapshot, decision_cache=cache), pods, group=group, options=options())
        assert kept == decide(snapshot, pods, group=group, options=options())
