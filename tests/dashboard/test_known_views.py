"""What the dashboard keeps from one snapshot to the next shows the same as if it were made anew."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from engine_objects import allocated, allocation, claim, device_class, node, pod, pod_group, resource_slice

from haru.dashboard.views.device_map import KnownPlaces, device_map
from haru.dashboard.views.queue import KnownPods, pods_of, waiting_work
from haru.dashboard.views.workloads import Filter, Workload
from haru.engine import SchedulerCache
from haru.engine.backfill import CONDITION as RESERVED
from haru.engine.equivalence import DecisionCache
from haru.explain.cards import Layouts

Obj = dict[str, Any]
NODES, PODS, CLAIMS, GROUPS = ("n0", "n1", "n2"), ("p0", "p1", "p2", "p3"), ("c0", "c1", "c2"), ("g0", "g1")
OWNERS = ("job/a", "job/b", "")
FILTERS = (Filter(), Filter(workload="job/a"), Filter(node="n1"))


class Changing:
    """A cluster in which pods, claims, nodes and slices change in every way that the map and the queue show."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.cache = SchedulerCache.of([device_class("gpu"), *(pod_group(name, 1) for name in GROUPS)])
        self.there: dict[tuple[str, str], Obj] = {}

    def step(self) -> None:
        if self.there and self.random.random() < 0.15:
            self.cache.remove(self.there.pop(self.random.choice(sorted(self.there))))
            return
        obj = self.random.choice((self.node, self.slice, self.pod, self.pod, self.claim, self.claim, self.job))()
        self.there[obj["kind"], obj["metadata"]["name"]] = obj
        self.cache.apply(obj)

    def some(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def node(self) -> Obj:
        labels = self.some({}, {"simulated.haru.dev/profile": "x"})
        taints = self.some([], [{"key": "a", "effect": "NoSchedule"}])
        obj = node(self.some(*NODES), labels=labels, taints=taints, unschedulable=self.some(True, False))
        obj["status"]["conditions"] = [{"type": "Ready", "status": self.some("True", "False")}]
        obj["status"]["allocatable"]["example.com/plugin"] = self.some("0", "2")
        return obj

    def slice(self) -> Obj:
        name = self.some(*NODES)
        taints = self.some([], [{"key": "broken", "effect": "NoSchedule"}])
        made = resource_slice(name, [{"name": "gpu-0", "taints": taints}, {"name": "gpu-1"}])
        made["spec"]["pool"]["resourceSliceCount"] = self.some(1, 1, 2)
        return made

    def pod(self) -> Obj:
        made = pod(
            self.some(*PODS), node=self.some("", *NODES), group=self.some("", *GROUPS), claims=[self.some(*CLAIMS)]
        )
        made["metadata"]["annotations"] = {"simulated.haru.dev/utilization": self.some("1", "90")}
        kind, _, name = self.some(*OWNERS).partition("/")
        if kind:
            reference = {
                "kind": "Job",
                "apiVersion": "batch/v1",
                "name": name,
                "uid": f"uid-{name}",
                "controller": True,
            }
            made["metadata"]["ownerReferences"] = [reference]
        made["status"]["phase"] = self.some("Pending", "Running", "Succeeded")
        made["spec"]["containers"][0]["resources"]["requests"]["example.com/plugin"] = self.some("0", "1")
        return made

    def job(self) -> Obj:
        name = self.some("a", "b")
        template = {"metadata": {}, "spec": {"containers": [{"name": "main", "image": "x"}], "restartPolicy": "Never"}}
        spec = {"parallelism": self.some(0, 1, 2), "suspend": self.some(True, False), "template": template}
        metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}

    def claim(self) -> Obj:
        made = claim(self.some(*CLAIMS))
        if self.random.random() < 0.2:
            return made
        made = allocated(made, allocation(self.some(*NODES), self.some("gpu-0", "gpu-1")), pod(self.some(*PODS)))
        if self.random.random() < 0.4:
            name = self.some(*GROUPS)
            made["status"]["reservedFor"] = [
                {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": name, "uid": f"uid-group-{name}"}
            ]
        return made


@pytest.mark.parametrize("seed", range(4))
def test_known_places_and_pods_show_the_same_as_new_ones(seed: int) -> None:
    changing = Changing(Random(seed))
    layouts, places, pods = Layouts(), KnownPlaces(), KnownPods()
    for _ in range(60):
        for _ in range(changing.random.randrange(1, 4)):
            changing.step()
        snapshot = changing.cache.snapshot()
        for chosen in FILTERS:
            assert device_map(snapshot, layouts, chosen, places) == device_map(snapshot, Layouts(), chosen)
            assert waiting_work(snapshot, chosen, pods) == waiting_work(snapshot, chosen)
        for name in ("job/a", "job/b", "podgroup/g0", "podgroup/g1", "pod/p0"):
            work = Workload("default", name)
            assert pods_of(snapshot, work, pods) == pods_of(snapshot, work)


class Recording(DecisionCache):
    """Notes what it is asked about."""

    __slots__ = ("topics",)

    def __init__(self) -> None:
        super().__init__()
        self.topics: set[str] = set()

    def get_or_compute(self, topic: str, key: Hashable, compute: Callable[[], Any], limit: int = 64) -> Any:
        self.topics.add(topic)
        return super().get_or_compute(topic, key, compute, limit)


def test_map_finds_reserved_cards_without_the_cache_of_the_thread_that_explains() -> None:
    head = pod("head", claims=["both"])
    head["status"]["conditions"] = [{"type": RESERVED, "status": "True"}]
    ready, holder = node("n"), pod("p", node="n", claims=["c"])
    ready["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    held = [ready, resource_slice("n", 2), holder, allocated(claim("c"), allocation("n", "gpu-0"), holder)]
    cache = Recording()
    snapshot = SchedulerCache.of([device_class("gpu"), *held, head, claim("both", count=2)]).snapshot()
    found = device_map(replace(snapshot, decision_cache=cache), Layouts())
    assert found.totals.counts.reserved == 1000
    assert not cache.topics
