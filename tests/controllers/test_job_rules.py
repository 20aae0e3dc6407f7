"""The rules that the Job controller applies, as tables."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haru.controllers.job_indexes import format_indexes, parse_indexes
from haru.controllers.job_pods import change_of, job_pod
from haru.controllers.job_policies import judge, success
from haru.controllers.job_retries import FAILURES, IGNORED_FAILURES, ending_of, finished_at, index_delay, restart_delay
from haru.controllers.job_status import status_of
from haru.controllers.job_tracking import TRACKING, tally
from haru.controllers.job_verdict import verdict_of
from haru.kube.names import format_time

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds):
    return format_time(NOW + timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("indexes", "text"), [(set(), ""), ({0}, "0"), ({1, 2}, "1,2"), ({0, 1, 2, 5, 7, 8, 9}, "0-2,5,7-9")]
)
def test_indexes_are_formatted_as_ranges(indexes, text):
    assert format_indexes(indexes) == text
    assert parse_indexes(text, 10) == indexes


@given(st.sets(st.integers(0, 200)))
def test_formatted_indexes_parse_to_same_set(indexes):
    assert parse_indexes(format_indexes(indexes), 201) == indexes


def test_indexes_beyond_completions_are_ignored():
    assert parse_indexes("1-5,8", 4) == {1, 2, 3}


def pod_of(
    uid, phase="Running", *, tracked=True, deleting=False, index=None, tried=0, ignored=0, conditions=(), code=0
):
    metadata = {"name": uid, "namespace": "ns", "uid": uid, "annotations": {}}
    if tracked:
        metadata["finalizers"] = [TRACKING]
    if deleting:
        metadata["deletionTimestamp"] = at(0)
    if index is not None:
        metadata["annotations"]["batch.kubernetes.io/job-completion-index"] = str(index)
    if tried:
        metadata["annotations"][FAILURES] = str(tried)
    if ignored:
        metadata["annotations"][IGNORED_FAILURES] = str(ignored)
    status = {"phase": phase, "conditions": [{"type": type, "status": "True"} for type in conditions]}
    if phase in ("Succeeded", "Failed"):
        terminated = {"exitCode": code, "finishedAt": at(0)}
        status["containerStatuses"] = [{"name": "c", "state": {"terminated": terminated}}]
    return {"metadata": metadata, "spec": {}, "status": status}


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
        ([pod_of("a"), pod_of("b", "Pending")], 0, 0, 2),
        ([pod_of("a", "Succeeded"), pod_of("b", "Failed"), pod_of("c")], 1, 1, 1),
        ([pod_of("a", "Running", deleting=True)], 0, 1, 0),
        ([pod_of("a", "Succeeded", deleting=True)], 1, 0, 0),
        ([pod_of("a", "Succeeded", tracked=False)], 0, 0, 0),
        ([pod_of("a", tracked=False)], 0, 0, 0),
    ],
)
def test_tally_counts_succeeded_failed_and_active_pods(pods, succeeded, failed, active):
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
def test_counts_are_exact_after_crash_at_any_step(phases, crashes):
    """A pass may stop after the status was written; pods are also removed as soon as they have no finalizer."""
    pods = [pod_of(f"p{i}", phase) for i, phase in enumerate(phases)]
    job = {"spec": {}}
    for crash in [*crashes, False, False, False]:
        written, released = settle(job, pods)
        job = written
        if not crash:
            pods = [p for p in released if p["metadata"]["finalizers"]]
    assert job["status"].get("succeeded", 0) == phases.count("Succeeded")
    assert job["status"].get("failed", 0) == phases.count("Failed")
    assert job["status"]["uncountedTerminatedPods"] == {}


def test_index_counts_as_succeeded_once():
    job = {"spec": {"completionMode": "Indexed", "completions": 3}}
    pods = [pod_of("a", "Succeeded", index=0), pod_of("b", "Succeeded", index=0), pod_of("c", "Succeeded", index=7)]
    counted = tally(job, pods)
    assert (counted.succeeded, counted.completed) == (1, {0})
    assert len(counted.to_release) == 3
    assert counted.status()["completedIndexes"] == "0"


@pytest.mark.parametrize(("policy", "failed"), [(None, 1), ("TerminatingOrFailed", 1), ("Failed", 0)])
def test_terminating_pod_counts_as_failed_by_replacement_policy(policy, failed):
    assert tally({"spec": {"podReplacementPolicy": policy}}, [pod_of("a", deleting=True)]).failed == failed


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
def test_restart_delay_grows_with_recent_failures(pods, delay):
    assert restart_delay([ending for pod in pods if (ending := ending_of(pod)) is not None], NOW) == delay


# -- policies ---------------------------------------------------------------------------------------------------------


def with_rules(*rules, **spec):
    return {"metadata": {"name": "j"}, "spec": {"podFailurePolicy": {"rules": list(rules)}, "template": {}, **spec}}


def on_codes(action, operator, *values, **more):
    return {"action": action, "onExitCodes": {"operator": operator, "values": list(values), **more}}


IGNORE_DISRUPTION = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
DISRUPTED = pod_of("a", "Failed", code=143, conditions=["DisruptionTarget"])


@pytest.mark.parametrize(
    ("rules", "pod", "action", "failure"),
    [
        ([], pod_of("a", "Failed", code=1), "", ""),
        ([on_codes("Ignore", "In", 3)], pod_of("a", "Failed", code=1), "", ""),
        ([on_codes("Ignore", "In", 1, 3)], pod_of("a", "Failed", code=3), "Ignore", ""),
        ([on_codes("Count", "NotIn", 3)], pod_of("a", "Failed", code=1), "Count", ""),
        ([on_codes("FailIndex", "NotIn", 3)], pod_of("a", "Failed", code=0), "", ""),
        ([on_codes("Ignore", "In", 3, containerName="d")], pod_of("a", "Failed", code=3), "", ""),
        (
            [on_codes("Ignore", "In", 9), on_codes("FailJob", "In", 3, containerName="c")],
            pod_of("a", "Failed", code=3),
            "FailJob",
            "Container c for pod ns/a failed with exit code 3 matching FailJob rule at index 1",
        ),
        ([IGNORE_DISRUPTION, on_codes("FailJob", "NotIn", 0)], DISRUPTED, "Ignore", ""),
        (
            [{**IGNORE_DISRUPTION, "action": "FailJob"}],
            DISRUPTED,
            "FailJob",
            "Pod ns/a has condition DisruptionTarget matching FailJob rule at index 0",
        ),
        ([{**IGNORE_DISRUPTION, "onPodConditions": [{"type": "Ready", "status": "False"}]}], DISRUPTED, "", ""),
        ([on_codes("Ignore", "In", 1)], pod_of("a", "Running"), "", ""),
    ],
)
def test_first_matching_pod_failure_rule_applies(rules, pod, action, failure):
    assert judge(with_rules(*rules), pod) == (action, failure)


def test_pod_failure_rule_reads_init_containers():
    pod = pod_of("a", "Failed")
    status = {"name": "i", "state": {"terminated": {"exitCode": 7, "finishedAt": at(0)}}}
    pod["status"]["initContainerStatuses"] = [status]
    assert judge(with_rules(on_codes("Ignore", "In", 7)), pod).action == "Ignore"


@pytest.mark.parametrize(
    ("rules", "completed", "expected"),
    [
        ([{"succeededCount": 2}], {0}, ""),
        ([{"succeededCount": 2}], {0, 3}, "Matched rules at index 0"),
        ([{"succeededCount": 0}], set(), ""),
        ([{"succeededIndexes": "0,2-3"}], {0, 2}, ""),
        ([{"succeededIndexes": "0,2-3"}], {0, 1, 2, 3}, "Matched rules at index 0"),
        ([{"succeededIndexes": "0,2-3", "succeededCount": 1}], {1}, ""),
        ([{"succeededIndexes": "0,2-3", "succeededCount": 1}], {1, 2}, "Matched rules at index 0"),
        ([{"succeededIndexes": "9"}, {"succeededCount": 1}], {1}, "Matched rules at index 1"),
    ],
)
def test_success_policy_matches_completed_indexes(rules, completed, expected):
    job = {"spec": {"completions": 5, "successPolicy": {"rules": rules}}}
    assert success(job, completed) == expected


def test_ignored_failures_are_never_counted():
    job = with_rules(IGNORE_DISRUPTION)
    pods = [DISRUPTED, pod_of("b", "Failed", code=1)]
    for _ in range(3):
        assert tally(job, pods).failed == 1
        job, pods = settle(job, pods)
    assert job["status"]["failed"] == 1
    assert not any(pod["metadata"]["finalizers"] for pod in pods)


# -- indexes that fail on their own -----------------------------------------------------------------------------------


def by_index(limit=1, **spec):
    base = {"completionMode": "Indexed", "completions": 4, "parallelism": 4, "backoffLimitPerIndex": limit}
    return {"metadata": {"name": "j", "uid": "u"}, "spec": {**base, "template": {"spec": {}}, **spec}}


def test_failed_pod_keeps_finalizer_until_replacement_records_failure_count():
    job, failed = by_index(), pod_of("a", "Failed", code=1, index=2)
    counted = tally(job, [failed])
    assert (counted.held, counted.to_release, counted.failed) == ({2: failed}, [], 1)
    replacement = job_pod(job, 2, None, failed)
    assert replacement["metadata"]["annotations"][FAILURES] == "1"
    counted = tally(job, [failed, pod_of("b", index=2, tried=1)])
    assert (counted.held, counted.to_release, counted.uncounted_failed) == ({}, [failed], ["a"])


def test_index_fails_after_backoff_limit_per_index():
    job = by_index()
    counted = tally(job, [pod_of("b", "Failed", code=1, index=2, tried=1)])
    assert counted.failed_indexes == {2}
    assert counted.status()["failedIndexes"] == "2"
    assert not counted.held
    # It stays failed once the pod is gone, and is not tried again.
    counted = tally({**job, "status": counted.status()}, [])
    assert counted.failed_indexes == {2}
    assert change_of(job, counted, NOW).missing == [0, 1, 3]


def test_fail_index_rule_fails_at_once_and_ignore_rule_does_not_count():
    job = by_index(podFailurePolicy={"rules": [on_codes("FailIndex", "In", 3), IGNORE_DISRUPTION]})
    pods = [
        pod_of("a", "Failed", code=3, index=0),
        pod_of("b", "Failed", index=1, tried=9, conditions=["DisruptionTarget"]),
    ]
    counted = tally(job, pods)
    assert counted.failed_indexes == {0}
    annotations = job_pod(job, 1, None, counted.held[1])["metadata"]["annotations"]
    assert (annotations[FAILURES], annotations[IGNORED_FAILURES]) == ("9", "1")


def test_pods_of_a_job_with_a_selector_by_hand_have_the_labels_of_its_template_alone():
    labels = job_pod(by_index(), None, None)["metadata"]["labels"]
    assert {"job-name", "batch.kubernetes.io/controller-uid"} <= labels.keys()
    by_hand = by_index()
    by_hand["spec"] |= {"manualSelector": True, "template": {"metadata": {"labels": {"app": "x"}}, "spec": {}}}
    assert job_pod(by_hand, None, None)["metadata"]["labels"] == {"app": "x"}


def test_failed_pod_with_most_retries_is_held_per_index():
    pods = [pod_of("a", "Failed", code=1, index=0, tried=2), pod_of("b", "Failed", code=1, index=0, tried=1)]
    counted = tally(by_index(5), pods)
    assert counted.held == {0: pods[0]}
    assert counted.uncounted_failed == ["b"]


def test_restart_delay_applies_per_index():
    job = by_index(5)
    pods = [pod_of("a", "Failed", code=1, index=0, tried=2), pod_of("b", "Failed", code=1, index=3)]
    counted = tally(job, pods)
    change = change_of(job, counted, NOW + timedelta(seconds=15))
    assert (change.missing, change.again) == ([1, 2, 3], 25)
    assert index_delay(pods[0], NOW) == 40
    assert index_delay(pod_of("c", "Failed", code=1, index=0, ignored=40), NOW) == 600


def test_finished_job_holds_no_failed_pod():
    counted = tally(by_index(), [pod_of("a", "Failed", code=1, index=2)])
    counted.let_go()
    assert (counted.held, counted.uncounted_failed, len(counted.to_release)) == ({}, ["a"], 1)


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        ({"metadata": {"creationTimestamp": at(3)}}, 3),
        ({"metadata": {"deletionTimestamp": at(30), "deletionGracePeriodSeconds": 20}}, 10),
        (
            {
                "metadata": {"creationTimestamp": at(3)},
                "status": {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": at(7)}]},
            },
            7,
        ),
        ({"metadata": {}}, None),
    ],
)
def test_end_time_of_pod_comes_from_containers_or_deletion(pod, expected):
    assert finished_at(pod) == (None if expected is None else NOW + timedelta(seconds=expected))


# -- verdicts ---------------------------------------------------------------------------------------------------------


def verdict(job, *pods):
    counted = tally(job, pods)
    found = verdict_of(job, counted, pods, NOW)
    return (found.announced, found.reason) if found is not None else None


@pytest.mark.parametrize(
    ("job", "pods", "expected"),
    [
        (by_index(), [pod_of("a", "Failed", index=0)], None),
        (by_index(maxFailedIndexes=0), [pod_of("a", "Failed", index=0, tried=1)], "MaxFailedIndexesExceeded"),
        (by_index(maxFailedIndexes=1), [pod_of("a", "Failed", index=0, tried=1)], None),
        (
            by_index(),
            [pod_of(f"s{i}", "Succeeded", index=i) for i in (0, 1, 2)] + [pod_of("a", "Failed", index=3, tried=1)],
            "FailedIndexes",
        ),
        (with_rules(on_codes("FailJob", "In", 3)), [pod_of("a", "Failed", code=3)], "PodFailurePolicy"),
        # A pod that was taken away on purpose and has no finalizer any more says nothing about the Job.
        (with_rules(on_codes("FailJob", "In", 143)), [pod_of("a", "Failed", code=143, tracked=False)], None),
        (with_rules(IGNORE_DISRUPTION, backoffLimit=0), [DISRUPTED], None),
        (with_rules(IGNORE_DISRUPTION, backoffLimit=0), [pod_of("b", "Failed", code=1)], "BackoffLimitExceeded"),
    ],
)
def test_verdict_has_failure_reason_of_job(job, pods, expected):
    assert verdict(job, *pods) == (("FailureTarget", expected) if expected else None)


def test_success_policy_of_leader_index_completes_job():
    job = by_index(successPolicy={"rules": [{"succeededIndexes": "0"}]})
    assert verdict(job, pod_of("a", "Succeeded", index=1), pod_of("b", index=0)) is None
    assert verdict(job, pod_of("a", "Succeeded", index=0), pod_of("b", index=1)) == (
        "SuccessCriteriaMet",
        "SuccessPolicy",
    )


def test_failure_is_checked_before_success_policy():
    rules = {"rules": [{"succeededIndexes": "0"}]}
    job = by_index(successPolicy=rules, podFailurePolicy={"rules": [on_codes("FailJob", "In", 3)]})
    pods = [pod_of("a", "Succeeded", index=0), pod_of("b", "Failed", code=3, index=1)]
    assert verdict(job, *pods) == ("FailureTarget", "PodFailurePolicy")
    # What was announced stands, whatever happens then.
    job["status"] = {"conditions": [{"type": "SuccessCriteriaMet", "status": "True", "reason": "SuccessPolicy"}]}
    assert verdict(job, *pods) == ("SuccessCriteriaMet", "SuccessPolicy")


def test_job_that_fails_while_suspended_has_no_resumed_condition():
    job = {"metadata": {"name": "j"}, "spec": {"suspend": True, "backoffLimit": 0, "template": {}}}
    job["status"] = {"conditions": [{"type": "Suspended", "status": "True"}]}
    pods = [pod_of("a", "Failed", code=1)]
    counted = tally(job, pods)
    status = status_of(job, counted, verdict_of(job, counted, pods, NOW), at(0))
    assert [(c["type"], c["status"]) for c in status["conditions"]] == [
        ("Suspended", "True"),
        ("FailureTarget", "True"),
    ]
