"""A refused decision carries what each node said, so that nobody has to ask the nodes again."""

from __future__ import annotations

from engine_objects import decide_all, node, options, pod

from haru.engine.podgroup import diagnose_pod
from haru.engine.state.cache import SchedulerCache
from haru.engine.state.pod_info import PodInfo

SMALL, CLOSED = node("small", cpu="1"), node("closed", unschedulable=True)


def test_refused_pod_has_the_failures_of_each_node() -> None:
    diagnosis = decide_all([SMALL, CLOSED, pod("p", cpu="4")]).diagnosis
    assert diagnosis is not None
    assert diagnosis.pod.name == "p"
    said = {name: [failure.reason.type for failure in failures] for name, failures in diagnosis.nodes.items()}
    assert said == {"closed": ["NodeUnschedulable"], "small": ["InsufficientResource"]}


def test_placed_pod_has_no_diagnosis() -> None:
    assert decide_all([node("large"), pod("p")]).diagnosis is None


def test_diagnosis_of_a_decision_is_what_the_nodes_say_when_asked() -> None:
    work = pod("p", cpu="4")
    diagnosis = decide_all([SMALL, CLOSED, work]).diagnosis
    snapshot = SchedulerCache.of([SMALL, CLOSED, work]).snapshot()
    assert diagnosis == diagnose_pod(snapshot, PodInfo.of(work), None, options(), snapshot.node_names)
