"""No name of another namespace is in what a tenant is told; numbers, priorities and all of its own stay."""

from __future__ import annotations

import json
import random
import string
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from explain_world import cluster

from haru.engine import Reason, SchedulerCache, Snapshot
from haru.engine.dra import DeviceId
from haru.explain import (
    Choice,
    DeviceStory,
    Explanation,
    NodeStory,
    PendingList,
    explain,
    explain_device,
    explain_node,
    pending_rows,
    to_text,
)
from haru.explain.render import (
    from_json,
    named_namespaces,
    namespaces_in_list,
    namespaces_in_story,
    redacted,
    redacted_list,
    redacted_story,
    to_short,
)
from haru.explain.render.html import to_html

Obj = dict[str, Any]
MINE = "mine"
CARDS = [f"gpu-{number}" for number in range(8)]


@cache
def machines() -> tuple[Obj, ...]:
    return tuple(cluster(dgx_h100=2))


def word(rng: random.Random) -> str:
    """A name that no sentence has by itself: letters only, or with digits and dashes."""
    letters = "".join(rng.choices(string.ascii_lowercase, k=9))
    return letters if rng.random() < 0.5 else f"{letters}-{rng.randrange(10, 99)}"


def claim(namespace: str, owner: Obj, node: str, cards: list[str]) -> Obj:
    meta = owner["metadata"]
    exactly = {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": max(1, len(cards))}
    made: Obj = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": f"{meta['name']}-c", "namespace": namespace, "uid": f"claim-{meta['uid']}"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }
    if node:
        results = [{"request": "gpu", "driver": "gpu.nvidia.com", "pool": node, "device": card} for card in cards]
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        made["status"] = {
            "allocation": {
                "devices": {"results": results},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
            },
            "reservedFor": [{"resource": "pods", "name": meta["name"], "uid": meta["uid"]}],
        }
    return made


def pod(namespace: str, name: str, node: str = "", cards: list[str] | None = None, **more: Any) -> list[Obj]:
    uid = f"{namespace}.{name}"
    labels = more.pop("labels", {})
    owners = more.pop("owners", [])
    spec: Obj = {"containers": [{"name": "m", "image": "i"}], "schedulerName": "default-scheduler", **more}
    meta: Obj = {"name": name, "namespace": namespace, "uid": uid, "labels": labels}
    if owners:
        meta["ownerReferences"] = owners
    made: Obj = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    made["status"] = {"phase": "Running" if node else "Pending"}
    if node:
        spec["nodeName"] = node
    if cards is None:
        return [made]
    spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": f"{name}-c"}]
    return [made, claim(namespace, made, node, cards)]


def owner(rng: random.Random, kind: str) -> tuple[list[Obj], Obj, str]:
    """Who owns a pod, its labels, and its name as people know it."""
    name = word(rng)
    if kind == "Deployment":
        reference = {"kind": "ReplicaSet", "name": f"{name}-5d4f", "uid": name, "controller": True, "apiVersion": "a"}
        return [reference], {"pod-template-hash": "5d4f"}, name
    return [{"kind": kind, "name": name, "uid": name, "controller": True, "apiVersion": "apps/v1"}], {}, name


def world(seed: int) -> tuple[Snapshot, Obj, set[str]]:
    """A cluster full of others' work, a pod that waits in `mine`, and the names that it may not be told."""
    rng = random.Random(seed)
    objects, hidden = list(machines()), set()
    nodes = [obj["metadata"]["name"] for obj in objects if obj["kind"] == "Node"]
    namespaces = [word(rng) for _ in range(3)]
    hidden.update(namespaces)
    free = {node: rng.sample(CARDS, rng.randrange(0, 2)) for node in nodes}
    for node in nodes:
        left = [card for card in CARDS if card not in free[node]]
        while left:
            count = rng.choice((1, 2, 4))
            taken, left = left[:count], left[count:]
            namespace = rng.choice([*namespaces, MINE]) if seed % 2 else rng.choice(namespaces)
            name, kind = word(rng), rng.choice(("Deployment", "StatefulSet", "Job", ""))
            owners, labels, title = owner(rng, kind) if kind else ([], {}, name)
            if namespace != MINE:
                hidden |= {name, title, f"{name}-c"}
            priority = rng.randrange(3)
            objects += pod(namespace, name, node, taken, owners=owners, labels=labels, priority=priority)
    objects += [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in [*namespaces, MINE]]
    mine = pod(MINE, "waits", "", [], priority=rng.choice((0, 5)))
    mine[1]["spec"]["devices"]["requests"][0]["exactly"]["count"] = rng.choice((2, 4, 8))
    if rng.random() < 0.3:
        objects = [
            o | ({"spec": {"unschedulable": True}} if o["metadata"]["name"] == nodes[0] else {}) for o in objects
        ]
    return SchedulerCache.of([*objects, *mine]).snapshot(), mine[0], hidden


def said(told: Explanation) -> str:
    return "\n".join((to_text(told), json.dumps(told.as_dict()), str(to_html(told))))


@pytest.mark.parametrize("seed", range(40))
def test_no_name_of_another_namespace_is_told(seed: int) -> None:
    snapshot, mine, hidden = world(seed)
    told = explain(snapshot, "pod", mine)
    assert any(name in said(told) for name in hidden), "the whole answer has names to hide"
    shown = said(redacted(told, snapshot, {MINE}))
    assert not [name for name in hidden if name in shown]


def texts_of(told: NodeStory | DeviceStory | PendingList) -> str:
    whole = told.text(wide=True) if isinstance(told, PendingList) else f"{told}\n{told.short()}"
    return "\n".join((whole, json.dumps(told.as_dict()), str(told.html())))


@pytest.mark.parametrize("seed", range(20))
def test_no_name_of_another_namespace_is_in_stories_and_lists(seed: int) -> None:
    snapshot, _, hidden = world(seed)
    everybody = {pod.key.namespace for pod in snapshot.pods.values()}
    stories: list[NodeStory | DeviceStory] = [explain_node(snapshot, name) for name in snapshot.node_names]
    for held in (state for story in stories for state in getattr(story, "devices", ())[:2]):
        stories.append(explain_device(snapshot, DeviceId(held.driver, held.pool, held.device)))
    for story in stories:
        shown = redacted_story(story, snapshot, {MINE})
        assert not [name for name in hidden if name in texts_of(shown)], story
        assert {MINE, *namespaces_in_story(story)} <= everybody
        assert redacted_story(story, snapshot, everybody) == story
    assert any(name in texts_of(story) for story in stories for name in hidden), "there are names to hide"
    rows = pending_rows(snapshot, Choice(lambda pod: pod.key.namespace == MINE))
    found = PendingList(rows, "here")
    assert found.rows and not [name for name in hidden if name in texts_of(redacted_list(found, snapshot, {MINE}))]
    assert redacted_list(found, snapshot, {MINE, *namespaces_in_list(found)}) == found


@pytest.mark.parametrize("seed", range(6))
def test_names_are_found_alike_whatever_was_asked_before(seed: int) -> None:
    """The index of names follows the cluster: pods that come and go are known, and are forgotten."""
    rng = random.Random(seed)
    known = SchedulerCache.of([*machines(), *pod(MINE, "waits")])
    told = Explanation("Pod", MINE, "waits", "FitsIf", "", ())
    there: dict[str, Obj] = {}
    moments = []
    for _ in range(30):
        if there and rng.random() < 0.4:
            known.remove(there.pop(rng.choice(sorted(there))))
        else:
            [obj] = pod(rng.choice(("blue", "green")), f"train-{rng.randrange(8)}")
            there[f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"] = obj
            known.apply(obj)
        moments.append((known.snapshot(), {path.partition("/")[2] for path in there}))
    for snapshot, names in [*moments, *rng.sample(moments, 10)]:
        for number in range(8):
            text = f'pod "train-{number}" waits'
            hidden = redacted(replace(told, summary=text), snapshot, {MINE}).summary != text
            assert hidden == (f"train-{number}" in names)


@pytest.mark.parametrize("seed", range(10))
def test_numbers_stay_as_they_were(seed: int) -> None:
    snapshot, mine, _ = world(seed)
    told = explain(snapshot, "pod", mine)
    shown = redacted(told, snapshot, {MINE})
    assert (shown.verdict, shown.kind, shown.name) == (told.verdict, told.kind, told.name)
    for before, after in zip(told.requests, shown.requests, strict=True):
        assert (before.needed, before.free, before.short) == (after.needed, after.free, after.short)
        for one, other in zip(before.stages, after.stages, strict=True):
            assert sum(h.devices for h in one.holders) == sum(h.devices for h in other.holders)
            assert {h.priority for h in one.holders} == {h.priority for h in other.holders}
    assert [r.kind for r in shown.remedies] == [r.kind for r in told.remedies]
    assert [r.confirmed for r in shown.remedies] == [r.confirmed for r in told.remedies]


def test_names_stay_for_who_may_see_all_of_the_namespaces() -> None:
    snapshot, mine, _ = world(2)
    told = explain(snapshot, "pod", mine)
    assert named_namespaces(told)
    assert redacted(told, snapshot, {MINE, *named_namespaces(told)}) == told


def test_own_names_and_words_of_the_sentence_stay() -> None:
    """A pod of another tenant that is called like a word, a node or one's own pod hides none of them."""
    node = next(obj["metadata"]["name"] for obj in machines() if obj["kind"] == "Node")
    other = [pod("other", name)[0] for name in ("gpu", "node", "free", node, "waits", "default-scheduler")]
    snapshot = SchedulerCache.of([*machines(), *other, *pod(MINE, "waits", "", [])]).snapshot()
    mine = snapshot.pods[f"{MINE}/waits"].obj
    told = explain(snapshot, "pod", mine)
    assert redacted(told, snapshot, {MINE}) == told


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("kept for podgroup other/train-7", "kept for podgroup of another namespace"),
        ("held by other/train-7 (3)", "held by work of another namespace (3)"),
        ("deployment/train-7 makes new ones", "a deployment of another namespace makes new ones"),
        ("pod plain waits", "pod of another namespace waits"),
        ("a plain word stays", "a plain word stays"),
        ("namespace other is full", "namespace of another namespace is full"),
        ("device gpu.nvidia.com/node/gpu-0 on node n1", "device gpu.nvidia.com/node/gpu-0 on node n1"),
    ],
)
def test_names_in_sentences(text: str, shown: str) -> None:
    others = [pod("other", name)[0] for name in ("train-7", "plain")]
    snapshot = SchedulerCache.of([*others, *pod(MINE, "waits")]).snapshot()
    told = Explanation("Pod", MINE, "waits", "FitsIf", text, (Reason("Reserved", text, {"for": "other/train-7"}),))
    found = redacted(replace(told), snapshot, {MINE})
    assert found.summary == shown
    assert found.reasons[0].data == {"for": "work of another namespace"}


@pytest.mark.parametrize("seed", range(6))
def test_explanation_from_json_reads_and_writes_the_same(seed: int) -> None:
    """What a field of the JSON lacks in `render/from_json.py`, `haru explain` does not show of the resident answer."""
    snapshot, mine, _ = world(seed)
    for told in (explain(snapshot, "pod", mine), redacted(explain(snapshot, "pod", mine), snapshot, {MINE})):
        read = from_json(json.loads(json.dumps(told.as_dict())))
        assert read.as_dict() == json.loads(json.dumps(told.as_dict()))
        assert (to_text(read), to_short(read)) == (to_text(told), to_short(told))
    running = next(pod.obj for pod in snapshot.pods.values() if pod.node)
    told = explain(snapshot, "pod", running)
    assert from_json(told.as_dict()).as_dict() == told.as_dict()
