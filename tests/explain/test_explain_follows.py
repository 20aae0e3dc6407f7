"""A first explanation is that of any other: however the cluster came about, and whatever is known of nodes by then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from engine_objects import DRIVER, Obj, allocated, allocation, claim, device_class, node, pod, pod_group, resource_slice
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from haru.engine import Options, SchedulerCache, Snapshot
from haru.engine.dra import NodeView, decode_claims
from haru.engine.equivalence import DecisionCache, SelectorFootprint
from haru.explain import explain, to_json
from haru.explain.diagnosis.device_classes import DeviceSignature

NODES = [f"n{number}" for number in range(5)]
CARDS = 4
MEMBERS = 5
ATTRIBUTES = f'device.attributes["{DRIVER}"]'
SELECTORS = (
    f'{ATTRIBUTES}.architecture == "Hopper"',
    f'{ATTRIBUTES}.architecture == "Hopper"',
    f'{ATTRIBUTES}.uuid.endsWith("0") || {ATTRIBUTES}.architecture == "Ampere"',
    f'{ATTRIBUTES}.missing == "x"',
    "device.attributes.size() > 0",
)
KINDS = ("slice", "slice", "second", "use", "use", "hold", "end", "node", "gone", "rule", "wide")
Change = Callable[[dict[str, Obj]], None]


def card(node_: str, index: int, **more: Any) -> Obj:
    attributes = {"architecture": "Hopper", "uuid": f"{node_}-{index}", "root": f"{node_}-r{index // 2}", **more}
    return {"name": f"d{index}", "attributes": {name: {"string": value} for name, value in attributes.items()}}


def cards(node_: str, sort: str) -> list[Obj]:
    """The devices of a node. The first sorts have outfits, the others have not."""
    found = [card(node_, index) for index in range(CARDS)]
    if sort == "older":
        found = [card(node_, index, architecture="Ampere") for index in range(CARDS)]
    elif sort == "mixed":
        found[0] = card(node_, 0, architecture="Ampere")
    elif sort == "other names":
        del found[1]["attributes"]["root"]
    elif sort == "tainted":
        found[0]["taints"] = [{"key": "bad", "value": "x", "effect": "NoSchedule"}]
    elif sort == "sizes":
        found[0]["capacity"] = {"memory": {"value": "40Gi"}}
    elif sort == "shared":
        found[0]["allowMultipleAllocations"] = True
    return found


SORTS = ("usual", "usual", "usual", "older", "mixed", "other names", "tainted", "sizes", "shared")


@st.composite
def changes(draw: st.DrawFn) -> Change:
    """One change of the objects that there are, by kind and name."""
    name = draw(st.sampled_from(NODES))
    what = draw(st.sampled_from(KINDS))
    sort, cut = draw(st.sampled_from(SORTS)), draw(st.booleans())
    used, priority = draw(st.sets(st.integers(0, CARDS - 1), min_size=1)), draw(st.integers(0, 2))

    def change(objects: dict[str, Obj]) -> None:
        put = [node(name, cpu="64", unschedulable=cut)]
        if what == "slice":
            put = [resource_slice(name, cards(name, sort))]
        elif what == "second":
            put = [resource_slice(name, cards(name, sort)[: priority + 1], pool=f"{'a' if cut else 'z'}-{name}")]
        elif what == "use":
            user = pod(f"user-{name}-{min(used)}", node=name, claims=[f"c-{name}-{min(used)}"], priority=priority)
            devices = [f"d{index}" for index in sorted(used)]
            put = [user, allocated(claim(f"c-{name}-{min(used)}"), allocation(name, *devices), user)]
        elif what == "hold":
            put = [allocated(claim(f"c-{name}-h"), allocation(name, *[f"d{index}" for index in sorted(used)]))]
        elif what == "rule":
            taint = {"key": "rule", "effect": "NoSchedule"}
            meta, selector = {"name": "rule"}, {"driver": DRIVER, "pool": name}
            put = [{"kind": "DeviceTaintRule", "metadata": meta, "spec": {"deviceSelector": selector, "taint": taint}}]
        elif what == "wide":
            put = [resource_slice("", cards(name, sort)[:1], pool="wide", allNodes=True)]
        if what in ("end", "gone") or (what in ("rule", "wide", "second") and cut):
            gone = {"end": ("-".join(("user", name)), f"c-{name}"), "gone": (name, f"slice-{name}")}
            names = gone.get(what, tuple(obj["metadata"]["name"] for obj in put))
            for key in [key for key in objects if key.partition("/")[2].startswith(names)]:
                del objects[key]
            return
        for obj in put:
            objects[f"{obj['kind']}/{obj['metadata']['name']}"] = obj

    return change


def gang(selector: str, count: int, together: bool) -> dict[str, Obj]:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    selectors = [{"cel": {"expression": selector}}]
    request = {"name": "gpu", "exactly": {**exactly, "selectors": selectors}}
    more: Obj = {"constraints": [{"matchAttribute": f"{DRIVER}/root"}]} if together else {}
    made = [device_class("gpu", [f'device.driver == "{DRIVER}"']), pod_group("g", MEMBERS, priority=1)]
    for number in range(MEMBERS):
        member = pod(f"m{number}", group="g", claims=[("gpu", "tmpl", f"m{number}-gpu")])
        made += [member, claim(f"m{number}-gpu", owner=member, requests=[request], **more)]
    return {f"{obj['kind']}/{obj['metadata']['name']}": obj for obj in made}


def told(snapshot: Snapshot, objects: dict[str, Obj]) -> Obj:
    return to_json(explain(snapshot, "podgroup", objects["PodGroup/g"], remedies=False))


def check_outfits(snapshot: Snapshot, objects: dict[str, Obj]) -> None:
    """Nodes of one outfit are one to a lens, if the claims are blind to what tells their devices apart."""
    features = Options().features
    claims = decode_claims([objects["ResourceClaim/m0-gpu"]], snapshot.devices.classes, features)
    regard, lens = SelectorFootprint.of(claims), DeviceSignature(claims, features)
    seen: dict[object, object] = {}
    for name in snapshot.node_names:
        classified = snapshot.classified_nodes.get(name) if snapshot.classified_nodes is not None else None
        if classified is None or not regard.is_blind(classified.node_device_class):
            continue
        view = NodeView(name, snapshot.nodes[name].labels)
        views = snapshot.devices.views(view)
        assert classified.uses == tuple(snapshot.allocated.use(view.key) for view in views)
        look = lens.signature(views, snapshot.allocated, view)
        assert seen.setdefault(classified.node_device_class, look) == look


def follow(steps: list[Change], selector: str, count: int, together: bool, full: bool, rng: Any) -> None:
    objects = gang(selector, count, together)
    for name in NODES[:4]:
        held = allocated(claim(f"c-{name}-h"), allocation(name, *[f"d{index}" for index in range(CARDS)]))
        for obj in (node(name, cpu="64"), resource_slice(name, cards(name, "usual")), held)[: 3 if full else 2]:
            objects[f"{obj['kind']}/{obj['metadata']['name']}"] = obj
    cluster = SchedulerCache.of(objects.values())
    for step in (lambda _: None, *steps):
        before = dict(objects)
        step(objects)
        for key in before.keys() - objects.keys():
            cluster.remove(before[key])
        for key, obj in objects.items():
            if before.get(key) is not obj:
                cluster.apply(obj)
        followed = cluster.snapshot()
        shuffled = list(objects.values())
        rng.shuffle(shuffled)
        new = SchedulerCache.of(shuffled).snapshot()
        check_outfits(followed, objects)
        expected = told(
            replace(
                new,
                node_device_classes=None,
                claim_index=replace(new.claim_index, owners=replace(new.claim_index.owners, claims={})),
                decision_cache=DecisionCache(),
            ),
            objects,
        )
        assert told(new, objects) == expected
        assert told(followed, objects) == expected


HISTORIES = st.tuples(
    st.lists(changes(), min_size=1, max_size=8),
    st.sampled_from(SELECTORS),
    st.sampled_from([2, 4, 4]),
    st.booleans(),
    st.booleans(),
    st.randoms(use_true_random=False),
)
SLOW = [HealthCheck.too_slow]


@settings(max_examples=8, deadline=None, suppress_health_check=SLOW)
@given(HISTORIES)
def test_explanation_of_updated_cache_equals_that_of_new_cache(history: Any) -> None:
    follow(*history)


@pytest.mark.nightly
@settings(max_examples=200, deadline=None, suppress_health_check=SLOW)
@given(HISTORIES)
def test_explanation_of_updated_cache_equals_that_of_new_cache_in_long_histories(history: Any) -> None:
    follow(*history)
