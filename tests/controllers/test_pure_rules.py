"""The rules that controllers apply, as tables."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haru.controllers import rollout
from haru.controllers.claim_names import generate_name, matches_group
from haru.controllers.deployment import find_new
from haru.controllers.job_indexes import format_indexes, parse_indexes
from haru.controllers.job_tracking import TRACKING, restart_delay, tally
from haru.controllers.job_workload import (
    never_started,
    new_pod_group,
    new_workload,
    pod_group_name,
    qualifies,
    template_name,
    workload_name,
)
from haru.controllers.manager import CONTROLLERS, select_controllers
from haru.controllers.node_lifecycle import retainted
from haru.controllers.replica_set import deletion_order
from haru.controllers.taint_eviction import eviction_time
from haru.engine.devices.eviction import claim_eviction, published_taints, rule_selects
from haru.kube.names import format_time, is_dns1123_label, is_dns1123_subdomain

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
def test_which_controllers_run(patterns, chosen):
    assert set(select_controllers(patterns)) == chosen


def test_an_unknown_controller_is_named():
    with pytest.raises(ValueError, match="'jobs' is not a controller; known are: deployment-controller"):
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
def test_names_of_generated_claims(owner, entry, base):
    assert generate_name(owner, entry) == base


SUBDOMAINS = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,240}[a-z0-9])?", fullmatch=True)
LABELS = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)


@given(SUBDOMAINS.filter(lambda name: not is_dns1123_subdomain(name)), LABELS)
def test_generated_names_are_valid_and_keep_both_parts(owner, entry):
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
def test_which_entries_are_the_groups(of_group, matches):
    assert matches_group({"spec": {"resourceClaims": [of_group]}}, ENTRY) is matches


# -- jobs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("indexes", "text"), [(set(), ""), ({0}, "0"), ({1, 2}, "1,2"), ({0, 1, 2, 5, 7, 8, 9}, "0-2,5,7-9")]
)
def test_indexes_are_written_in_runs(indexes, text):
    assert format_indexes(indexes) == text
    assert parse_indexes(text, 10) == indexes


@given(st.sets(st.integers(0, 200)))
def test_indexes_survive_being_written(indexes):
    assert parse_indexes(format_indexes(indexes), 201) == indexes


def test_indexes_beyond_the_completions_are_left_out():
    assert parse_indexes("1-5,8", 4) == {1, 2, 3}


def job_pod(uid, phase="Running", *, tracked=True, deleting=False, index=None):
    metadata = {"name": uid, "uid": uid, "annotations": {}}
    if tracked:
        metadata["finalizers"] = [TRACKING]
    if deleting:
        metadata["deletionTimestamp"] = at(0)
    if index is not None:
        metadata["annotations"]["batch.kubernetes.io/job-completion-index"] = str(index)
    return {"metadata": metadata, "status": {"phase": phase}}


def settle(job, pods):
    """One controller pass without the API: status is written, then finalizers go."""
    counted = tally(job, pods)
    job = {**job, "status": counted.status()}
    released = {pod["metadata"]["uid"] for pod in counted.to_release}
    pods = [
        {**p, "metadata": {**p["metadata"], "finalizers": []}} if p["metadata"]["uid"] in released else p for p in pods
    ]
    return job, pods


@pytest.mark.parametrize(
    ("pods", "succeeded", "failed", "active"),
    [
        ([], 0, 0, 0),
        ([job_pod("a"), job_pod("b", "Pending")], 0, 0, 2),
        ([job_pod("a", "Succeeded"), job_pod("b", "Failed"), job_pod("c")], 1, 1, 1),
        ([job_pod("a", "Running", deleting=True)], 0, 1, 0),
        ([job_pod("a", "Succeeded", deleting=True)], 1, 0, 0),
        ([job_pod("a", "Succeeded", tracked=False)], 0, 0, 0),
        ([job_pod("a", tracked=False)], 0, 0, 0),
    ],
)
def test_what_counts(pods, succeeded, failed, active):
    job = {"spec": {}}
    counted = tally(job, pods)
    assert (counted.succeeded, counted.failed, len(counted.active)) == (succeeded, failed, active)
    # However often a pass is repeated, before or after finalizers went, the counts stay.
    for _ in range(4):
        job, pods = settle(job, pods)
        counted = tally(job, pods)
        assert (counted.succeeded, counted.failed) == (succeeded, failed)
    assert job["status"].get("succeeded", 0) == succeeded
    assert job["status"].get("failed", 0) == failed


@given(st.lists(st.sampled_from(["Running", "Succeeded", "Failed"]), max_size=12), st.lists(st.booleans(), max_size=30))
def test_counts_are_exact_whenever_it_crashes(phases, crashes):
    """A pass may stop after the status was written; pods are also removed as soon as they have no finalizer."""
    pods = [job_pod(f"p{i}", phase) for i, phase in enumerate(phases)]
    job = {"spec": {}}
    for crash in [*crashes, False, False, False]:
        written, released = settle(job, pods)
        job = written
        if not crash:
            pods = [p for p in released if p["metadata"]["finalizers"]]
    assert job["status"].get("succeeded", 0) == phases.count("Succeeded")
    assert job["status"].get("failed", 0) == phases.count("Failed")
    assert job["status"]["uncountedTerminatedPods"] == {}


def test_an_index_succeeds_once():
    job = {"spec": {"completionMode": "Indexed", "completions": 3}}
    pods = [job_pod("a", "Succeeded", index=0), job_pod("b", "Succeeded", index=0), job_pod("c", "Succeeded", index=7)]
    counted = tally(job, pods)
    assert (counted.succeeded, counted.completed) == (1, {0})
    assert len(counted.to_release) == 3
    assert counted.status()["completedIndexes"] == "0"


@pytest.mark.parametrize(("policy", "failed"), [(None, 1), ("TerminatingOrFailed", 1), ("Failed", 0)])
def test_when_a_pod_that_is_being_deleted_has_failed(policy, failed):
    assert tally({"spec": {"podReplacementPolicy": policy}}, [job_pod("a", deleting=True)]).failed == failed


def ended(phase, seconds):
    terminated = {"state": {"terminated": {"finishedAt": at(seconds)}}}
    return {"metadata": {"name": "x"}, "status": {"phase": phase, "containerStatuses": [terminated]}}


@pytest.mark.parametrize(
    ("pods", "delay"),
    [
        ([], 0),
        ([ended("Succeeded", -1)], 0),
        ([ended("Failed", -1)], 9),
        ([ended("Failed", -20)], 0),
        ([ended("Failed", -5), ended("Failed", -2)], 18),
        ([ended("Failed", -9), ended("Succeeded", -5), ended("Failed", -2)], 8),
        ([ended("Failed", 0)] * 20, 600),
    ],
)
def test_failures_are_paid_with_patience(pods, delay):
    assert restart_delay(pods, NOW) == delay


def gang(**spec):
    base = {"parallelism": 4, "completions": 4, "completionMode": "Indexed", "template": {"spec": {}}}
    return {"metadata": {"name": "train", "namespace": "ns", "uid": "u1"}, "spec": {**base, **spec}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, True),
        ({"parallelism": 1, "completions": 1}, False),
        ({"completions": 5}, False),
        ({"completions": None}, False),
        ({"completionMode": "NonIndexed"}, False),
        ({"template": {"spec": {"schedulingGroup": {"podGroupName": "mine"}}}}, False),
    ],
)
def test_which_jobs_are_gangs(spec, expected):
    assert qualifies(gang(**spec)) is expected


@pytest.mark.parametrize(
    ("status", "has_pods", "expected"),
    [
        ({}, False, True),
        ({}, True, False),
        ({"startTime": at(0)}, False, False),
        ({"failed": 1}, False, False),
        ({"conditions": [{"type": "Suspended", "status": "False"}]}, False, False),
    ],
)
def test_only_a_job_without_history_gets_a_group(status, has_pods, expected):
    assert never_started({**gang(), "status": status}, has_pods) is expected


@pytest.mark.parametrize("length", [1, 10, 57, 58, 61, 63])
def test_template_names_fit(length):
    name = template_name("j" * length)
    assert not is_dns1123_label(name)
    assert (name == "j" * length + "-pgt-0") is (length <= 57)
    assert template_name("j" * 58) != template_name("j" * 59)


def test_long_names_are_cut_and_stay_different():
    long = {"metadata": {"name": "j" * 253, "uid": "u"}}
    assert len(workload_name(long)) <= 253
    names = {pod_group_name("w" * 253, "t" * n) for n in (1, 30, 63)}
    assert len(names) == 3
    assert all(len(name) <= 253 and not is_dns1123_subdomain(name) for name in names)
    assert pod_group_name("w" * 200, "t").startswith("w" * 200 + "-t-")


def test_workload_and_pod_group():
    workload = new_workload(gang())
    assert workload["spec"] == {
        "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": "train"},
        "podGroupTemplates": [{"name": "train-pgt-0", "schedulingPolicy": {"gang": {"minCount": 4}}}],
    }
    workload["metadata"]["uid"] = "w1"
    group = new_pod_group(gang(), workload)
    reference = {"workloadName": workload["metadata"]["name"], "podGroupTemplateName": "train-pgt-0"}
    assert group["spec"] == {
        "podGroupTemplateRef": {"workload": reference},
        "schedulingPolicy": {"gang": {"minCount": 4}},
    }
    of_job, of_workload = group["metadata"]["ownerReferences"]
    assert (of_job["kind"], of_job["controller"], of_job["blockOwnerDeletion"]) == ("Job", True, True)
    assert of_workload == {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "Workload",
        "name": workload["metadata"]["name"],
        "uid": "w1",
    }


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
def test_limits_round_towards_safety_and_never_block(given_limits, expected):
    assert (given_limits.max_surge, given_limits.max_unavailable) == expected


@pytest.mark.parametrize(
    ("new", "old", "size"),
    [(0, 10, 3), (3, 10, 3), (3, 8, 5), (9, 3, 10), (10, 0, 10), (12, 0, 10)],
)
def test_the_new_grows_into_the_surge(new, old, size):
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
def test_the_old_shrinks_within_what_may_be_missing(new, available, old, old_available, size):
    sizes = rollout.old_sizes(rs("new", new, available), [rs("old", old, old_available)], limits(10))
    assert sizes == {"old": size}


SMALL = st.integers(0, 10)


@given(st.integers(1, 20), SMALL, SMALL, st.lists(st.integers(0, 12), min_size=1, max_size=3), st.data())
def test_a_rollout_never_breaks_its_limits(wanted, surge, unavailable, old_sizes, data):
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
def test_rescaling_in_a_rollout_keeps_the_shares(sizes, wanted, expected):
    sets = [rs(name, size, created=i) for i, (name, size) in enumerate(sizes.items())]
    allowed = rollout.Limits(wanted, 3 if wanted == 20 else 2, 0)
    assert rollout.proportional_sizes(sets, allowed) == expected


@pytest.mark.parametrize(("noted", "expected"), [("3", False), ("5", True), (None, False)])
def test_whether_it_was_rescaled(noted, expected):
    annotations = {rollout.DESIRED: noted} if noted else {}
    assert rollout.was_rescaled([rs("a", 2, **annotations)], 3) is expected


def test_the_present_template_is_found_whatever_its_hash():
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


# -- replica sets -----------------------------------------------------------------------------------------------------


def replica(name, node="", phase="Pending", ready=False, cost=None, restarts=0, created=0):
    metadata = {"name": name, "creationTimestamp": at(created)}
    if cost is not None:
        metadata["annotations"] = {"controller.kubernetes.io/pod-deletion-cost": cost}
    status = {"phase": phase, "containerStatuses": [{"restartCount": restarts}]}
    if ready:
        status["conditions"] = [{"type": "Ready", "status": "True"}]
    return {"metadata": metadata, "spec": {"nodeName": node} if node else {}, "status": status}


@pytest.mark.parametrize(
    "pods",
    [
        [replica("first"), replica("then", "n")],
        [replica("first", "n"), replica("then", "n", "Running")],
        [replica("first", "n", "Running"), replica("then", "n", "Running", True)],
        [replica("first", "n", "Running", True, "-5"), replica("then", "n", "Running", True)],
        [replica("first", "n", "Running", True, "bad"), replica("then", "n", "Running", True, "1")],
        [replica("first", "n", restarts=5), replica("then", "n")],
        [replica("first", "n", created=9), replica("then", "n", created=1)],
    ],
)
def test_which_pod_is_missed_least(pods):
    for order in (pods, pods[::-1]):
        assert [pod["metadata"]["name"] for pod in deletion_order(order)] == ["first", "then"]


def test_of_equal_pods_those_that_share_a_node_go_first():
    pods = [replica("alone", "n1"), replica("a", "n2"), replica("b", "n2")]
    assert deletion_order(pods)[-1]["metadata"]["name"] == "alone"


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
        (node(None), False, [taint("unreachable", "NoSchedule")]),
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
def test_conditions_become_taints(given_node, evict, expected):
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
def test_when_a_pod_leaves_a_tainted_node(tolerations, due):
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


def test_only_the_newest_generation_of_a_pool_counts():
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
def test_what_a_rule_selects(selector, expected):
    assert rule_selects(rule(selector), "d", "p", "a") is expected


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
def test_when_the_users_of_a_device_leave(taints, rules, tolerations, due):
    results = [{"driver": "d", "pool": "p", "device": "a", "tolerations": tolerations}]
    found = claim_eviction(results, lambda driver, pool: [resource_slice(1, {"a": taints})], rules, NOW)
    assert (found.at if found else None) == (None if due is None else NOW + timedelta(seconds=due))
    if rules and found:
        assert found.rules == {"r"}


def test_a_rule_reaches_devices_that_are_published_no_more():
    results = [{"driver": "d", "pool": "p", "device": "a"}]
    found = claim_eviction(results, lambda driver, pool: [], [rule({"device": "a"})], NOW)
    assert found is not None
    assert found.taints == ("d/p/a: ruled=",)
