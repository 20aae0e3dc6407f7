"""A view for whom some namespaces are hidden names nothing of what is there, and counts as the whole one does."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from engine_objects import pod
from tenant_clusters import leaks, marks_in, namespace, tenant_cluster

from haru.cluster_view import ClusterView
from haru.dashboard.redaction.cluster import RedactedCluster
from haru.dashboard.redaction.objects import HIDDEN, Redaction
from haru.dashboard.views.device_map import device_map
from haru.dashboard.views.queue import waiting_work
from haru.dashboard.views.workloads import ANOTHER
from haru.engine import SchedulerCache, Snapshot
from haru.explain.cards import Layouts

Obj = dict[str, Any]
KEY = b"secret"


def view_of(cache: SchedulerCache, objects: list[Obj]) -> ClusterView:
    events = tuple(obj for obj in objects if obj["kind"] == "Event")
    return ClusterView(cache.snapshot(), 1, (), Layouts(), events)


def redacted(objects: list[Obj], *shown: str) -> ClusterView:
    cache = SchedulerCache.of(obj for obj in objects if obj["kind"] != "Event")
    return RedactedCluster(Redaction(frozenset(shown), KEY)).view(view_of(cache, objects))


def objects_in(view: ClusterView) -> list[Obj]:
    snapshot = view.snapshot
    return [
        *(info.obj for info in snapshot.pods.values()),
        *snapshot.claims.values(),
        *(obj for kind in snapshot.others.values() for obj in kind.values()),
        *view.events,
    ]


def without_labels(obj: Obj) -> str:
    """An object as text: labels are kept for selectors, and shown by no page."""
    return json.dumps({**obj, "metadata": {**obj["metadata"], "labels": None}})


@pytest.mark.parametrize("seed", range(12))
def test_view_for_a_tenant_has_no_name_of_hidden_namespaces_and_all_of_its_own(seed: int) -> None:
    objects = tenant_cluster(Random(seed))
    shown = {namespace(number) for number in Random(seed).sample(range(4), 2)}
    view = redacted(objects, *shown)
    found = objects_in(view)
    assert not [text for obj in found if leaks(text := without_labels(obj), shown)]
    paths = [*view.snapshot.pods, *view.snapshot.claims]
    assert not leaks(" ".join(paths), shown)
    own = [obj for obj in objects if obj["metadata"].get("namespace") in shown]
    identities = {(obj["kind"], obj["metadata"]["uid"]) for obj in found}
    assert {(obj["kind"], obj["metadata"]["uid"]) for obj in own} <= identities


@pytest.mark.parametrize("seed", range(6))
def test_view_for_a_tenant_counts_devices_and_pods_as_the_whole_view(seed: int) -> None:
    objects = tenant_cluster(Random(seed))
    cache = SchedulerCache.of(obj for obj in objects if obj["kind"] != "Event")
    whole = cache.snapshot()
    view = redacted(objects, namespace(0))
    assert len(view.snapshot.pods) == len(whole.pods) and len(view.snapshot.claims) == len(whole.claims)
    both = device_map(whole, Layouts()), device_map(view.snapshot, Layouts())
    assert both[0].totals == both[1].totals
    assert sum(count for _, count in both[0].holders) == sum(count for _, count in both[1].holders)
    for name, info in whole.nodes.items():
        assert view.snapshot.nodes[name].requested == info.requested


def test_attachment_tells_its_node_and_volume_and_not_what_became_of_it() -> None:
    spec = {"attacher": "csi.example.com", "nodeName": "a", "source": {"persistentVolumeName": "v"}}
    metadata = {"name": "csi-1", "uid": "1", "annotations": {"made-for": "qz1z"}}
    failed = {"attached": False, "attachError": {"message": "the volume of pod qz1z is elsewhere"}}
    whole = {"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": metadata, "spec": spec}
    told = Redaction(frozenset({namespace(0)}), KEY).object("VolumeAttachment", {**whole, "status": failed})
    assert told == {**whole, "metadata": {"name": "csi-1", "uid": "1"}}


def test_work_of_all_hidden_namespaces_is_one_workload() -> None:
    objects = tenant_cluster(Random(1))
    view = redacted(objects, namespace(0))
    holders = dict(device_map(view.snapshot, Layouts()).holders)
    assert ANOTHER in holders and {work.namespace for work in holders} <= {"", namespace(0)}
    waiting = [each.workload for each in waiting_work(view.snapshot)]
    assert waiting.count(ANOTHER) == 1 and HIDDEN in ANOTHER.name


def test_name_of_a_hidden_object_stays_the_same_in_one_server_and_differs_in_another() -> None:
    one, other = Redaction(frozenset(), KEY), Redaction(frozenset(), b"other")
    assert one.name("a", "b") == one.name("a", "b") != other.name("a", "b")
    assert one.name("a", "b") != one.name("b", "b") and one.path("a/b").startswith(f"{HIDDEN}/hidden-")


def same(one: Snapshot, other: Snapshot) -> bool:
    return {path: info.obj for path, info in one.pods.items()} == {
        path: info.obj for path, info in other.pods.items()
    } and dict(one.claims) == dict(other.claims)


@pytest.mark.parametrize("seed", range(4))
def test_view_that_follows_changes_is_the_view_made_at_once(seed: int) -> None:
    random = Random(seed)
    before, after = tenant_cluster(Random(seed)), tenant_cluster(Random(seed + 100))
    cache = SchedulerCache.of(obj for obj in before if obj["kind"] != "Event")
    followed = RedactedCluster(Redaction(frozenset({namespace(1)}), KEY))
    first = followed.view(view_of(cache, before))
    for obj in random.sample(before, len(before)):
        if obj["kind"] not in ("Event", "Node", "ResourceSlice"):
            cache.remove(obj)
        followed.view(view_of(cache, before))
    for obj in after:
        if obj["kind"] != "Event":
            cache.apply(obj)
    last = followed.view(view_of(cache, after))
    assert same(last.snapshot, redacted(after, namespace(1)).snapshot)
    assert not same(first.snapshot, last.snapshot)


def test_snapshot_is_the_same_object_while_nothing_changes() -> None:
    objects = tenant_cluster(Random(3))
    cache = SchedulerCache.of(obj for obj in objects if obj["kind"] != "Event")
    cluster = RedactedCluster(Redaction(frozenset(), KEY))
    one = cluster.view(view_of(cache, objects)).snapshot
    assert cluster.view(view_of(cache, objects)).snapshot is one
    cache.apply(pod("another"))
    assert cluster.view(view_of(cache, objects)).snapshot is not one


def test_marks_tell_whose_a_name_is() -> None:
    assert marks_in("pod run-qz3z-0 of team-qz12z") == {3, 12} and leaks("run-qz3z-0", {namespace(3)}) == set()
