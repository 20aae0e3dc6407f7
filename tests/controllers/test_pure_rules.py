"""The rules that controllers apply, as tables."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haru.controllers import rollout
from haru.controllers.claim_names import generate_name, matches_group
from haru.controllers.deployment import find_new
from haru.controllers.manager import CONTROLLERS, select_controllers
from haru.controllers.node_lifecycle import retainted
from haru.controllers.revisions import template_data
from haru.engine.dra import DeviceId, claim_eviction, published_taints, rule_selects
from haru.engine.plugins import eviction_time
from haru.kube.names import format_time, is_dns1123_subdomain

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds):
    return format_time(NOW + timedelta(seconds=seconds))


# -- --controllers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("patterns", "chosen"),
    [
        (["*"], set(CONTROLLERS)),
        (["*", "-job-controller"], set(CONTROLLERS) - {"job-controller"}),
        (["job-controller", "deployment-controller"], {"job-controller", "deployment-controller"}),
        (["-job-controller"], set()),
        ([], set()),
    ],
)
def test_controllers_flag_selects_controllers(patterns, chosen):
    assert set(select_controllers(patterns)) == chosen


def test_unknown_controller_is_named():
    with pytest.raises(ValueError, match="'jobs' is not a controller; known are: certificatesigningrequest-approving"):
        select_controllers(["jobs"])


# -- claims -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("owner", "entry", "base"),
    [
        ("pod", "gpu", "pod-gpu-"),
        ("p" * 50, "gpus", "p" * 50 + "-gpus-"),
        ("p" * 53, "gpu", "p" * 53 + "-gpu"),
        ("p" * 60, "e" * 60, "p" * 28 + "-" + "e" * 28),
        ("p" * 27 + "." + "p" * 30, "e" * 58, "p" * 27 + "-" + "e" * 28),
    ],
)
def test_generated_claim_name_joins_pod_and_claim_name(owner, entry, base):
    assert generate_name(owner, entry) == base


SUBDOMAINS = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,240}[a-z0-9])?", fullmatch=True)
LABELS = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)


@given(SUBDOMAINS.filter(lambda name: not is_dns1123_subdomain(name)), LABELS)
def test_generated_name_is_valid_and_keeps_both_parts(owner, entry):
    base = generate_name(owner, entry)
    assert len(base) <= 57
    assert base[0] == owner[0]
    assert not is_dns1123_subdomain(base + "abcde")


ENTRY = {"name": "gpu", "resourceClaimTemplateName": "t"}


@pytest.mark.parametrize(
    ("of_group", "matches"),
    [
        (ENTRY, True),
        ({"name": "gpu", "resourceClaimTemplateName": "other"}, False),
        ({"name": "other", "resourceClaimTemplateName": "t"}, False),
        ({"name": "gpu", "resourceClaimName": "t"}, False),
    ],
)
def test_claim_entry_of_pod_matches_entry_of_group(of_group, matches):
    assert matches_group({"spec": {"resourceClaims": [of_group]}}, ENTRY) is matches


# -- deployments ------------------------------------------------------------------------------------------------------


def rs(name, replicas, available=None, created=0, **annotations):
    return {
        "metadata": {"name": name, "creationTimestamp": at(created), "annotations": annotations},
        "spec": {"replicas": replicas},
        "status": {"availableReplicas": replicas if available is None else available},
    }


def limits(wanted, surge="25%", unavailable="25%"):
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    return rollout.Limits.of({"spec": {"replicas": wanted, "strategy": {"rollingUpdate": rolling}}})


@pytest.mark.parametrize(
    ("given_limits", "expected"),
    [
        (limits(10), (3, 2)),
        (limits(4), (1, 1)),
        (limits(1), (1, 0)),
        (limits(3, 0, 0), (0, 1)),
        (limits(3, "0%", "10%"), (0, 1)),
        (limits(2, 5, 7), (5, 2)),
    ],
)
def test_surge_and_unavailable_percentages_are_rounded(given_limits, expected):
    assert (given_limits.max_surge, given_limits.max_unavailable) == expected


@pytest.mark.parametrize(
    ("new", "old", "size"),
    [(0, 10, 3), (3, 10, 3), (3, 8, 5), (9, 3, 10), (10, 0, 10), (12, 0, 10)],
)
def test_new_replica_set_grows_up_to_surge(new, old, size):
    assert rollout.new_size(rs("new", new), [rs("old", old)], limits(10), True) == size


@pytest.mark.parametrize(
    ("new", "available", "old", "old_available", "size"),
    [
        (0, 0, 10, 10, 8),  # two may be missing
        (3, 0, 10, 10, 8),
        (3, 0, 8, 10, 8),  # the status is late: what is gone already is not gone twice
        (3, 3, 8, 8, 5),
        (10, 10, 3, 3, 0),
        (3, 0, 10, 4, 8),  # those that do not serve go first, and only as many as may be missing
        (10, 8, 3, 3, 0),
    ],
)
def test_old_replica_sets_shrink_to_minimum_available(new, available, old, old_available, size):
    sizes = rollout.old_sizes(rs("new", new, available), [rs("old", old, old_available)], limits(10))
    assert sizes == {"old": size}


SMALL = st.integers(0, 10)


@given(st.integers(1, 20), SMALL, SMALL, st.lists(st.integers(0, 12), min_size=1, max_size=3), st.data())
def test_rollout_steps_never_exceed_their_limits(wanted, surge, unavailable, old_sizes, data):
    allowed = limits(wanted, surge, unavailable)
    old = [rs(f"old{i}", n, data.draw(st.integers(0, n)), i) for i, n in enumerate(old_sizes)]
    size = data.draw(st.integers(0, wanted))
    new = rs("new", size, data.draw(st.integers(0, size)))
    grown = rollout.new_size(new, old, allowed, True)
    assert grown <= max(wanted, size)
    if grown > size:
        assert grown + sum(old_sizes) <= wanted + allowed.max_surge
    shrunk = rollout.old_sizes(new, old, allowed)
    before = sum(o["status"]["availableReplicas"] for o in old) + new["status"]["availableReplicas"]
    # The worst that can happen is that available pods are chosen only after all unavailable ones are gone.
    after = sum(min(shrunk[o["metadata"]["name"]], o["status"]["availableReplicas"]) for o in old)
    after += new["status"]["availableReplicas"]
    assert after >= min(before, allowed.min_available)
    assert all(0 <= shrunk[o["metadata"]["name"]] <= o["spec"]["replicas"] for o in old)


@pytest.mark.parametrize(
    ("sizes", "wanted", "expected"),
    [
        ({"a": 10, "b": 5}, 20, {"a": 15, "b": 8}),
        ({"a": 10, "b": 5}, 10, {"a": 8, "b": 4}),
        ({"a": 3}, 0, {"a": 0}),
    ],
)
def test_scaling_during_rollout_keeps_proportions(sizes, wanted, expected):
    sets = [rs(name, size, created=i) for i, (name, size) in enumerate(sizes.items())]
    allowed = rollout.Limits(wanted, 3 if wanted == 20 else 2, 0)
    assert rollout.proportional_sizes(sets, allowed) == expected


@pytest.mark.parametrize(("noted", "expected"), [("3", False), ("5", True), (None, False)])
def test_changed_desired_replicas_annotation_means_scaled(noted, expected):
    annotations = {rollout.DESIRED: noted} if noted else {}
    assert rollout.was_rescaled([rs("a", 2, **annotations)], 3) is expected


def test_replica_set_of_current_template_is_found_with_any_hash():
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"a": 1}}
    hashed = {"metadata": {"labels": {"app": "x", "pod-template-hash": "h"}}, "spec": {"a": 1}}
    sets = [
        {"metadata": {"name": "other"}, "spec": {"template": {**hashed, "spec": {"a": 2}}}},
        {"metadata": {"name": "younger", "creationTimestamp": at(9)}, "spec": {"template": hashed}},
        {"metadata": {"name": "older", "creationTimestamp": at(1)}, "spec": {"template": hashed}},
    ]
    found = find_new({"spec": {"template": template}}, sets)
    assert found is not None
    assert found["metadata"]["name"] == "older"


# -- nodes ------------------------------------------------------------------------------------------------------------


def node(ready, taints=(), **conditions):
    listed = [{"type": "Ready", "status": ready}] if ready else []
    listed += [{"type": type_, "status": status} for type_, status in conditions.items()]
    return {"spec": {"taints": [dict(t) for t in taints]}, "status": {"conditions": listed}}


def taint(key, effect, seconds=0):
    return {"key": f"node.kubernetes.io/{key}", "effect": effect, "timeAdded": at(seconds)}


OWN = {"key": "mine", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("given_node", "evict", "expected"),
    [
        (node("True"), True, None),
        (node("False"), True, [taint("not-ready", "NoSchedule"), taint("not-ready", "NoExecute")]),
        (node("Unknown"), True, [taint("unreachable", "NoSchedule"), taint("unreachable", "NoExecute")]),
        (node("Unknown"), False, [taint("unreachable", "NoSchedule")]),
        (node(None), True, None),
        (node(None, [taint("not-ready", "NoSchedule", -9), OWN]), True, None),
        (node("True", MemoryPressure="True"), True, [taint("memory-pressure", "NoSchedule")]),
        (node("True", [OWN, taint("not-ready", "NoExecute", -9)]), True, [OWN]),
        (
            node("Unknown", [taint("unreachable", "NoExecute", -9)]),
            False,
            [taint("unreachable", "NoExecute", -9), taint("unreachable", "NoSchedule")],
        ),
        (node("False", [taint("not-ready", "NoSchedule", -9), taint("not-ready", "NoExecute", -9)]), True, None),
    ],
)
def test_node_conditions_become_taints(given_node, evict, expected):
    assert retainted(given_node, evict, at(0)) == expected


@pytest.mark.parametrize(
    ("tolerations", "due"),
    [
        ([], 0),
        ([{"key": "other", "operator": "Exists"}], 0),
        ([{"operator": "Exists"}], None),
        ([{"key": "k", "operator": "Exists", "effect": "NoExecute"}], None),
        ([{"key": "k", "operator": "Exists", "tolerationSeconds": 300}], 240),
        ([{"key": "k", "operator": "Exists", "tolerationSeconds": -1}], -60),
        ([{"key": "k", "operator": "Exists", "tolerationSeconds": 300}, {"operator": "Exists"}], 240),
    ],
)
def test_eviction_time_follows_toleration_seconds(tolerations, due):
    taints = [{"key": "k", "effect": "NoExecute", "timeAdded": at(-60)}]
    expected = None if due is None else NOW + timedelta(seconds=due)
    assert eviction_time({"spec": {"tolerations": tolerations}}, taints, NOW) == expected


# -- devices ----------------------------------------------------------------------------------------------------------


def resource_slice(generation, devices):
    listed = [{"name": name, "taints": taints} for name, taints in devices.items()]
    return {"spec": {"driver": "d", "pool": {"name": "p", "generation": generation}, "devices": listed}}


BAD = {"key": "bad", "effect": "NoExecute", "timeAdded": at(-60)}


def rule(selector, effect="NoExecute"):
    taint_ = {"key": "ruled", "effect": effect, "timeAdded": at(-30)}
    return {"metadata": {"name": "r"}, "spec": {"deviceSelector": selector, "taint": taint_}}


def test_taints_come_only_from_newest_pool_generation():
    slices = [resource_slice(1, {"a": [BAD]}), resource_slice(2, {"a": []})]
    assert published_taints(slices, "a") == []
    assert published_taints(slices[:1], "a") == [BAD]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, False),
        ({}, True),
        ({"driver": "d"}, True),
        ({"driver": "x"}, False),
        ({"pool": "p", "device": "b"}, False),
    ],
)
def test_device_selector_of_taint_rule_matches_device(selector, expected):
    assert rule_selects(rule(selector), DeviceId("d", "p", "a")) is expected


@pytest.mark.parametrize(
    ("taints", "rules", "tolerations", "due"),
    [
        ([], [], [], None),
        ([BAD], [], [], -60),
        ([{**BAD, "effect": "NoSchedule"}], [], [], None),
        ([BAD], [], [{"key": "bad", "operator": "Exists"}], None),
        ([BAD], [], [{"operator": "Exists", "effect": "NoSchedule"}], -60),
        ([BAD], [], [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 100}], 40),
        ([BAD], [], [{"operator": "Exists", "tolerationSeconds": 100}, {"key": "bad", "operator": "Exists"}], None),
        ([BAD], [rule({})], [{"key": "bad", "operator": "Exists"}], -30),
        ([], [rule({"device": "a"})], [], -30),
        ([], [rule({}, "None")], [], None),
        ([BAD], [rule({})], [], -60),
    ],
)
def test_device_eviction_time_follows_tolerations(taints, rules, tolerations, due):
    results = [{"driver": "d", "pool": "p", "device": "a", "tolerations": tolerations}]
    found = claim_eviction(results, lambda driver, pool: [resource_slice(1, {"a": taints})], rules, NOW)
    assert (found.at if found else None) == (None if due is None else NOW + timedelta(seconds=due))
    if rules and found:
        assert found.rules == {"r"}


def test_taint_rule_applies_to_device_no_longer_published():
    results = [{"driver": "d", "pool": "p", "device": "a"}]
    found = claim_eviction(results, lambda driver, pool: [], [rule({"device": "a"})], NOW)
    assert found is not None
    assert found.taints == ("d/p/a: ruled=",)


def test_revision_keeps_the_template_in_the_order_of_its_names() -> None:
    template = {"spec": {"b": [{"z": 1, "a": 2}], "a": {}}, "metadata": {"labels": {}}}
    text = json.dumps(template_data({"spec": {"template": template}}))
    assert text == json.dumps(json.loads(text), sort_keys=True)
    assert json.loads(text)["spec"]["template"] == {**template, "$patch": "replace"}
