"""What large clusters cost, counted in questions to nodes and domains tried, not in seconds (`make bench` has those).

The shapes are those of the upstream scheduler's performance tests, a tenth of them by day.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from engine_objects import Obj, node, options, pod, pod_group
from topology_objects import RACK, gang, rack

from haru.engine.equivalence.filter_runner import FilterRunner
from haru.engine.podgroup import decide
from haru.engine.podgroup.domain_search import DomainSearch
from haru.engine.state.cache import SchedulerCache
from haru.engine.state.decision import Decision

TENTH = pytest.param(0.1, id="a tenth")
WHOLE = pytest.param(1.0, id="whole", marks=pytest.mark.nightly)


class Work:
    """Nodes that were asked, and domains that were tried, since it was last taken."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.tried: list[str] = []

    def taken(self) -> tuple[int, int]:
        done = len(self.asked), len(self.tried)
        self.asked.clear()
        self.tried.clear()
        return done


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    done = Work()
    ask, trial = FilterRunner.filter_node, DomainSearch.trial

    def counted_ask(runner: FilterRunner, feasibility: Any, member: Any, demand: Any, info: Any) -> None:
        done.asked.append(info.name)
        ask(runner, feasibility, member, demand, info)

    def counted_trial(placements: DomainSearch, domain: str) -> Any:
        done.tried.append(domain)
        return trial(placements, domain)

    monkeypatch.setattr(FilterRunner, "filter_node", counted_ask)
    monkeypatch.setattr(DomainSearch, "trial", counted_trial)
    yield done


def place(cluster: SchedulerCache, objects: list[Obj]) -> Decision:
    """Decide a gang that is new, and count its members as placed."""
    for obj in objects:
        cluster.apply(obj)
    members = [obj for obj in objects if obj["kind"] == "Pod"]
    group = objects[0] if objects[0]["kind"] == "PodGroup" else None
    both = {"preempt_for_pods": True, "preempt_for_groups": True}
    decision = decide(cluster.snapshot(), members, group=group, options=options(**both))
    for member in decision.placed:
        cluster.assume_pod(member.pod, member.node or "")
    return decision


@pytest.mark.parametrize("size", [TENTH, WHOLE])
def test_thousand_small_gangs_need_few_node_checks(work: Work, size: float) -> None:
    """A thousand gangs of three on five thousand nodes: a decision asks what the one before has changed."""
    nodes = int(5000 * size)
    cluster = SchedulerCache.of([node(f"n{i:04}") for i in range(nodes)])
    for number in range(int(1000 * size)):
        name = f"g{number:04}"
        members = [pod_group(name, 3), *(pod(f"{name}-{i}", group=name) for i in range(3))]
        assert len(place(cluster, members).placed) == 3
        asked, _ = work.taken()
        assert asked <= (nodes + 3 if number == 0 else 6)


@pytest.mark.parametrize("members", [4, 1000])
@pytest.mark.parametrize("size", [TENTH, WHOLE])
def test_gang_in_racks_tries_few_domains(work: Work, size: float, members: int) -> None:
    """Fifty racks of a hundred nodes: hardly any but the one that is chosen is tried."""
    per_rack, members = int(100 * size), max(4, int(members * size))
    cluster = SchedulerCache.of([obj for number in range(50) for obj in rack(f"r{number:02}", per_rack, cpu="8")])
    for number in range(6):
        decision = place(cluster, gang(f"g{number}", members, cpu="500m"))
        assert len(decision.placed) == members
        homes = {cluster.snapshot().nodes[m.node or ""].labels[RACK] for m in decision.placed}
        assert len(homes) == 1
        asked, tried = work.taken()
        assert tried <= 2
        assert asked <= tried * (per_rack + members)


@pytest.mark.parametrize("size", [TENTH, WHOLE])
def test_preemptors_do_not_increase_node_checks_of_others(work: Work, size: float) -> None:
    """Four unimportant pods on each of five thousand nodes; who preempts, who cannot fit, and others, in turn."""
    nodes = int(5000 * size)
    cluster = SchedulerCache.of([node(f"n{i:04}", cpu="4500m") for i in range(nodes)])
    for number in range(4 * nodes):
        cluster.apply(pod(f"low-{number:05}", node=f"n{number // 4:04}", priority=1))
    for number in range(10):
        high = place(cluster, [pod(f"high-{number}", cpu="4", priority=100)])
        assert (high.status, len(high.evictions)) == ("nominated", 4)
        never = place(cluster, [pod(f"never-{number}", cpu="5", priority=100)])
        assert (never.status, never.evictions) == ("unschedulable", ())
        work.taken()
        assert len(place(cluster, [pod(f"plain-{number}", cpu="100m")]).placed) == 1
        asked, _ = work.taken()
        assert asked <= (nodes if number == 0 else 5)
