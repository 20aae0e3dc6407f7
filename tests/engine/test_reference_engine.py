"""The engine filters and scores every node like a reference implementation of the rules, after any change."""

from __future__ import annotations

from typing import Any

import pytest
from engine_objects import Obj, options
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from node_rule_objects import APPS, NAMESPACES, SERVICE, SET, clusters, nodes, plain, pods
from plain_scheduler import PlainCluster

from haru.engine.equivalence.filter_results import FilterResultCache
from haru.engine.plugins.dynamicresources.prefilter import DeviceDemand
from haru.engine.state.cache import SchedulerCache
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo


def check(objects: list[Obj], work: Obj, overlay: Overlay) -> None:
    known = PlainCluster(objects)
    boards = FilterResultCache(overlay, options(), overlay.snapshot.node_names)
    board = boards.feasibility(PodInfo.of(work), DeviceDemand())
    told = board.filter_failures(overlay)
    said = {name: tuple(f.reason.message for f in told.get(name, ())) for name in overlay.snapshot.node_names}
    assert said == known.refusals(work)
    totals, expected = board.ranking.totals(), known.scores(work)
    # What is the same for all nodes is left out by the engine; devices are the same for all here.
    offsets = {totals[name] - expected[name] for name in expected}
    assert totals.keys() == expected.keys()
    assert len(offsets) <= 1, (totals, expected)


SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(clusters(), st.data())
def test_filters_agree_with_plain_reimplementation(objects: list[Obj], data: st.DataObject) -> None:
    cluster = SchedulerCache.of(objects)
    work = data.draw(pods("p", [], False))
    check(objects, work, Overlay(cluster.snapshot()))


@settings(max_examples=20, deadline=None, suppress_health_check=SLOW)
@given(clusters(), st.data())
def test_cached_filters_agree_with_plain_reimplementation_after_changes(
    objects: list[Obj], data: st.DataObject
) -> None:
    follow(objects, data)


@pytest.mark.nightly
@settings(max_examples=3000, deadline=None, suppress_health_check=SLOW)
@given(clusters(), st.data())
def test_cached_filters_agree_with_plain_reimplementation_in_long_runs(objects: list[Obj], data: st.DataObject) -> None:
    follow(objects, data)


def follow(objects: list[Obj], data: st.DataObject) -> None:
    """Decisions after changes of any kind, with tentative placements that are dropped in between."""
    by_key = {(o["kind"], o["metadata"]["name"]): o for o in objects}
    cluster = SchedulerCache.of(objects)
    first = data.draw(pods("p0", [], False))
    # The same but for its labels: what is kept of the one must not answer for the other.
    alike = {**first, "metadata": {**first["metadata"], "name": "p1", "labels": {"app": data.draw(APPS)}}}
    kinds = [first, alike]
    for step in range(data.draw(st.integers(2, 6))):
        overlay = Overlay(cluster.snapshot())
        names = [name for kind, name in by_key if kind == "Node"]
        for work in kinds:
            check(list(by_key.values()), work, overlay)
        if names and data.draw(st.booleans()):
            tentative = data.draw(pods(f"t{step}", names, True))
            mark, where = overlay.mark(), tentative["spec"]["nodeName"]
            overlay.place(PodInfo.of({**tentative, "spec": {**tentative["spec"], "nodeName": ""}}), where)
            for work in kinds:
                check([*by_key.values(), tentative], work, overlay)
            if data.draw(st.booleans()):
                overlay.rollback(mark)
                check(list(by_key.values()), first, overlay)
        change(data, cluster, by_key, names)


def change(data: st.DataObject, cluster: SchedulerCache, by_key: dict[Any, Obj], names: list[str]) -> None:
    what = data.draw(st.sampled_from(["node", "pod", "pod", "other", "remove", "remove"]))
    if what == "remove":
        if by_key:
            key = data.draw(st.sampled_from(sorted(by_key)))
            cluster.remove(by_key.pop(key))
        return
    if what == "node":
        new = data.draw(nodes(data.draw(st.sampled_from(["n0", "n1", "n9"]))))
    elif what == "pod":
        # A pod stays in its namespace: one of the same name in another would be another pod.
        places = names or ["n0"]
        new = data.draw(pods(data.draw(st.sampled_from(["o0", "o1", "new"])), places, True))
        old = by_key.get(("Pod", new["metadata"]["name"]))
        new["metadata"]["namespace"] = old["metadata"]["namespace"] if old else new["metadata"]["namespace"]
    else:
        new = data.draw(st.sampled_from([SERVICE, SET, plain("Namespace", "other", {}, team="a"), *NAMESPACES]))
    by_key[new["kind"], new["metadata"]["name"]] = new
    cluster.apply(new)
