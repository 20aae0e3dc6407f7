"""The engine without any cache is the specification: decisions with and without a cache are equal, reasons included."""

from __future__ import annotations

from typing import Any

import golden_journal
import pytest
from engine_objects import options, pod_group
from golden_histories import Recorder, record_preemption, record_safety, settings_for
from hypothesis import given, seed
from hypothesis import strategies as st
from node_rule_objects import clusters, pods
from test_cached_answers import History

from haru.engine import SchedulerCache
from haru.engine.equivalence import NoCache
from haru.engine.journal import Replay
from nights import tonight

Obj = dict[str, Any]
EVERY = 40


class WithoutCache:
    """Take the entries of histories, and make each decision again on a cluster that keeps nothing."""

    def __init__(self) -> None:
        self._replay = Replay()
        self.decisions = 0

    def __call__(self, entry: Obj) -> None:
        if "history" in entry:
            self._replay = Replay(SchedulerCache(NoCache()))
            return
        for one in self._replay.run([entry]):
            self.decisions += 1
            assert golden_journal.normal(one.now) == golden_journal.normal(one.before), entry


def record_gangs(recorder: Recorder, start: int, histories: int) -> None:
    """Gangs with and without devices, one after the other, on clusters that change in between."""
    for number in range(start, start + histories):
        history = History(number, recorder.begin(f"gangs-{number}"))
        for step in range(12):
            history.step()
            group, members = history.work()
            history.enact(recorder.decide(history.cluster, members, group, options(seed=step)))


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[Obj], list[Obj]]:
    """A cluster and the members of a gang: nodes that offer the same or not, with rules between pods or without."""
    objects, other = draw(clusters()), draw(pods("other", [], False))
    members = [draw(pods("first", [], False))]
    members += [members[0] if equal else other for equal in draw(st.lists(st.booleans(), max_size=4))]
    nodes = [obj for obj in objects if obj["kind"] == "Node"]
    if draw(st.booleans()):
        for node in nodes:
            node["status"] = {"allocatable": nodes[0]["status"]["allocatable"]}
    if draw(st.booleans()):
        for pod in (*objects, *members):
            for rule in ("affinity", "topologySpreadConstraints"):
                pod["spec"].pop(rule, None)
    return objects, members


def record_node_rules(recorder: Recorder, start: int, examples: int) -> None:
    """Gangs of equal and different pods on clusters with all rules about nodes."""

    @seed(start)
    @settings_for(examples)
    @given(situations())
    def compare(situation: tuple[list[Obj], list[Obj]]) -> None:
        objects, members = situation
        cluster = recorder.begin(f"rules-{start}")
        group = pod_group("gang", 1 + len(members) // 2)
        named = [
            {**member, "metadata": {**member["metadata"], "name": f"p{number}", "uid": f"u{number}"}}
            for number, member in enumerate(members)
        ]
        for member in named:
            member["metadata"]["namespace"] = "default"
            member["spec"] = {**member["spec"], "schedulingGroup": {"podGroupName": "gang"}}
        for obj in (*objects, group, *named):
            cluster.apply(obj)
        recorder.decide(cluster, named, group, options(seed=start))

    compare()


def compare(start: int, safety: int, preemption: int, gangs: int, rules: int) -> int:
    """Compare decisions on random histories from a seed on; return how many there were."""
    compared = WithoutCache()
    recorder = Recorder(compared)
    record_safety(recorder, start, safety)
    record_preemption(recorder, range(start, start + preemption))
    record_gangs(recorder, start, gangs)
    record_node_rules(recorder, start, rules)
    return compared.decisions


def test_decisions_with_and_without_cache_are_equal_on_random_histories() -> None:
    assert compare(start=7000, safety=2, preemption=25, gangs=8, rules=150) > 250


def test_recorded_decisions_and_explanations_are_repeated_without_cache() -> None:
    histories = golden_journal.read(golden_journal.JOURNAL)[::EVERY]
    assert [text for history in histories for text in golden_journal.differences(history, NoCache())] == []


@pytest.mark.nightly
@pytest.mark.parametrize("start", tonight(range(8000, 8010)))
def test_decisions_with_and_without_cache_are_equal_on_many_random_histories(start: int) -> None:
    assert compare(start=start * 1000, safety=20, preemption=200, gangs=100, rules=1000) > 2000


@pytest.mark.nightly
def test_all_recorded_decisions_and_explanations_are_repeated_without_cache() -> None:
    histories = golden_journal.read(golden_journal.JOURNAL)
    assert [text for history in histories for text in golden_journal.differences(history, NoCache())] == []
