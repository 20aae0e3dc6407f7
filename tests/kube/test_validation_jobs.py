"""Jobs: how they complete and fail, what may change, and what their status may say."""

from __future__ import annotations

from typing import Any

import pytest
from kube_cases import ALL, DEFAULT, REMOVE, Obj, controller, problems, put, status_problems, update_problems

from haru.kube.gates import FeatureGates

JOB = controller("Job")
INDEXED = controller("Job", completionMode="Indexed", completions=4, parallelism=2)
GANG = controller("Job", completionMode="Indexed", completions=4, parallelism=4)
PER_INDEX = put(INDEXED, "spec.backoffLimitPerIndex", 1)
CODES = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3, 42]}}
DISRUPTED = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
RULES = "spec.podFailurePolicy.rules"
POLICY = put(JOB, RULES, [CODES, DISRUPTED])
SUCCESS = "spec.successPolicy.rules"
SUCCEEDING = put(INDEXED, SUCCESS, [{"succeededIndexes": "0,2-3", "succeededCount": 2}])
VALUES = f"{RULES}.0.onExitCodes.values"


@pytest.mark.parametrize(
    "job",
    [
        INDEXED,
        PER_INDEX,
        put(PER_INDEX, "spec.maxFailedIndexes", 4),
        POLICY,
        put(POLICY, "spec.podReplacementPolicy", "Failed"),
        put(POLICY, f"{RULES}.0.onExitCodes.containerName", "main"),
        put(PER_INDEX, RULES, [{**CODES, "action": "FailIndex"}]),
        SUCCEEDING,
        put(INDEXED, SUCCESS, [{"succeededCount": 1}, {"succeededIndexes": "1"}]),
        put(JOB, "spec.managedBy", "kueue.example.com/multi-kueue"),
    ],
)
def test_valid_job_policies_are_accepted(job: Obj) -> None:
    assert problems(job) == []


FAULTS: list[tuple[Obj, str, Any, str]] = [
    (
        INDEXED,
        "spec.completionMode",
        "Sorted",
        'Unsupported value: "Sorted": supported values: "NonIndexed", "Indexed"',
    ),
    (
        INDEXED,
        "spec.maxFailedIndexes",
        2,
        "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified",
    ),
    (INDEXED, "spec.backoffLimitPerIndex", -1, "Invalid value: -1: must be greater than or equal to 0"),
    (JOB, "spec.maxFailedIndexes", 1, "spec.maxFailedIndexes: Invalid value: 1: requires indexed completion mode"),
    (PER_INDEX, "spec.maxFailedIndexes", 5, "Invalid value: 5: must be less than or equal to completions"),
    (INDEXED, "spec.parallelism", 100_001, "must be less than or equal to 100000 when completion mode is Indexed"),
    (
        put(PER_INDEX, "metadata.name", "many"),
        "spec.completions",
        100_001,
        "spec.maxFailedIndexes: Required value: must be specified when completions is above 100000",
    ),
    (
        put(PER_INDEX, "spec.completions", 100_001),
        "spec.parallelism",
        10_001,
        "must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index",
    ),
    (POLICY, f"{RULES}.0.action", REMOVE, '["Count" "FailIndex" "FailJob" "Ignore"]'),
    (POLICY, f"{RULES}.0.action", "Panic", f'{RULES}[0].action: Unsupported value: "Panic": supported values: "Count"'),
    (POLICY, f"{RULES}.0.action", "FailIndex", '"FailIndex": requires the backoffLimitPerIndex to be set'),
    (POLICY, RULES, [CODES] * 21, f"{RULES}: Too many: 21: must have at most 20 items"),
    (
        POLICY,
        f"{RULES}.0",
        {**CODES, **DISRUPTED},
        f"{RULES}[0]: Invalid value: specifying both OnExitCodes and OnPodConditions is not supported",
    ),
    (
        POLICY,
        f"{RULES}.0",
        {"action": "Count"},
        f"{RULES}[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
    ),
    (POLICY, VALUES, [], f"{RULES}[0].onExitCodes.values: Invalid value: []: at least one value is required"),
    (POLICY, VALUES, list(range(1, 257)), "Too many: 256: must have at most 255 items"),
    (POLICY, VALUES, [0, 1], f"{RULES}[0].onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator"),
    (POLICY, VALUES, [3, 3], f"{RULES}[0].onExitCodes.values[1]: Duplicate value: 3"),
    (POLICY, VALUES, [42, 3], f"{RULES}[0].onExitCodes.values: Invalid value: [42,3]: must be ordered"),
    (POLICY, f"{RULES}.0.onExitCodes.operator", "Eq", 'Unsupported value: "Eq": supported values: "In", "NotIn"'),
    (
        POLICY,
        f"{RULES}.0.onExitCodes.containerName",
        "other",
        "must be one of the container or initContainer names in the pod template",
    ),
    (POLICY, f"{RULES}.1.onPodConditions.0.type", "a b", f"{RULES}[1].onPodConditions[0].type: Invalid value"),
    (POLICY, f"{RULES}.1.onPodConditions.0.status", "Maybe", 'supported values: "False", "True", "Unknown"'),
    (POLICY, f"{RULES}.1.onPodConditions", [{"type": "A"}] * 21, "onPodConditions: Too many: 21"),
    (POLICY, "spec.template.spec.restartPolicy", "OnFailure", 'only "Never" is supported when podFailurePolicy'),
    (POLICY, "spec.podReplacementPolicy", "TerminatingOrFailed", 'supported values: "Failed"'),
    (JOB, "spec.podReplacementPolicy", "Always", 'supported values: "Failed", "TerminatingOrFailed"'),
    (JOB, SUCCESS, [{"succeededCount": 1}], "spec.successPolicy: Invalid value"),
    (INDEXED, SUCCESS, [], f"{SUCCESS}: Required value: at least one rules must be specified"),
    (INDEXED, SUCCESS, [{"succeededCount": 1}] * 21, f"{SUCCESS}: Too many: 21: must have at most 20 items"),
    (INDEXED, SUCCESS, [{}], "at least one of succeededCount or succeededIndexes must be specified"),
    (
        INDEXED,
        SUCCESS,
        [{"succeededCount": 5}],
        "less than or equal to 4 (the number of specified completions)",
    ),
    (
        SUCCEEDING,
        f"{SUCCESS}.0.succeededCount",
        4,
        "must be less than or equal to 3 (the number of indexes in the specified succeededIndexes field)",
    ),
    (SUCCEEDING, f"{SUCCESS}.0.succeededIndexes", "4", 'error parsing succeededIndexes: too large index: "4"'),
    (SUCCEEDING, f"{SUCCESS}.0.succeededIndexes", "2,1", "non-increasing order, previous: 2, current: 1"),
    (SUCCEEDING, f"{SUCCESS}.0.succeededIndexes", "3-2", "non-increasing order, previous: 3, current: 2"),
    (SUCCEEDING, f"{SUCCESS}.0.succeededIndexes", "0-1-2", 'the fragment "0-1-2" violates the requirement'),
    (SUCCEEDING, f"{SUCCESS}.0.succeededIndexes", "a", 'cannot convert string to integer for index: "a"'),
    (JOB, "spec.managedBy", "kueue", 'must be a domain-prefixed path (such as "acme.io/foo")'),
    (JOB, "spec.managedBy", "", "spec.managedBy: Required value"),
    (JOB, "spec.managedBy", "UPPER/x", 'spec.managedBy: Invalid value: "UPPER": a lowercase RFC 1123 subdomain'),
    (JOB, "spec.managedBy", "a.b/c d", 'spec.managedBy: Invalid value: "c d": Invalid path (regex used for'),
    (JOB, "spec.managedBy", "a.b/" + "c" * 60, "spec.managedBy: Too long: may not be more than 63 bytes"),
]


@pytest.mark.parametrize(("job", "path", "value", "expected"), FAULTS)
def test_invalid_job_policies_are_refused(job: Obj, path: str, value: Any, expected: str) -> None:
    found = problems(put(job, path, value))
    assert any(expected in text for text in found), found


# -- updates ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "path", "value"),
    [
        (POLICY, f"{RULES}.0.action", "Count"),
        (SUCCEEDING, f"{SUCCESS}.0.succeededCount", 1),
        (PER_INDEX, "spec.backoffLimitPerIndex", 2),
        (JOB, "spec.managedBy", "example.com/other"),
        (INDEXED, "spec.completionMode", "NonIndexed"),
    ],
)
def test_job_policies_are_immutable(job: Obj, path: str, value: Any) -> None:
    field = path.split(".")[1]
    found = update_problems(put(job, path, value), job)
    assert any(text.startswith(f"spec.{field}: Invalid value") and "immutable" in text for text in found), found


def test_completions_change_only_together_with_parallelism() -> None:
    bigger = put(put(INDEXED, "spec.parallelism", 8), "spec.completions", 8)
    assert update_problems(bigger, INDEXED, DEFAULT) == []
    assert update_problems(put(INDEXED, "spec.completions", 8), INDEXED) == [
        "spec.completions: Invalid value: 8: can only be modified in tandem with spec.parallelism"
    ]
    assert update_problems(put(JOB, "spec.completions", 8), JOB) == [
        "spec.completions: Invalid value: 8: field is immutable"
    ]


@pytest.mark.parametrize(("parallelism", "completions"), [(8, 8), (2, 2), (2, 4), (1, 1), (0, 4)])
def test_indexed_job_may_be_resized(parallelism: int, completions: int) -> None:
    """Whether there is a gang that stands against it only its PodGroup tells: that is admission's to look for."""
    gates = FeatureGates.parse("GenericWorkload=true,WorkloadWithJob=true")
    new = put(put(GANG, "spec.parallelism", parallelism), "spec.completions", completions)
    assert update_problems(new, GANG, gates) == []
    assert update_problems(new, GANG, DEFAULT) == []


def test_job_with_own_scheduling_group_may_be_resized() -> None:
    grouped = put(GANG, "spec.template.spec.schedulingGroup", {"podGroupName": "mine"})
    bigger = put(put(grouped, "spec.parallelism", 8), "spec.completions", 8)
    assert update_problems(bigger, grouped, ALL) == []


SUSPENDED = put(controller("Job", suspend=True), "status.conditions", [{"type": "Suspended", "status": "True"}])
STARTED = put(controller("Job", suspend=True), "status.startTime", "2026-01-01T00:00:00Z")
POD = "spec.template.spec"
STEERED = [
    (f"{POD}.nodeSelector", {"rack": "r1"}),
    (f"{POD}.tolerations", [{"key": "gpu", "operator": "Exists"}]),
    (f"{POD}.schedulingGates", [{"name": "example.com/gate"}]),
    (f"{POD}.affinity", {"nodeAffinity": {}}),
    ("spec.template.metadata.annotations", {"queue": "a"}),
    ("spec.template.metadata.labels", {"app": "trainer", "more": "x"}),
]
SIZED = (f"{POD}.containers.0.resources", {"requests": {"cpu": "2"}})


@pytest.mark.parametrize(("path", "value"), [*STEERED, SIZED])
def test_suspended_job_may_change_scheduling_directives_and_resources(path: str, value: Any) -> None:
    for old in (put(JOB, "spec.suspend", True), SUSPENDED, put(SUSPENDED, "status.startTime", "2026-01-01T00:00:00Z")):
        assert update_problems(put(old, path, value), old) == []
    for old in (JOB, STARTED, put(put(SUSPENDED, "status.active", 1), "status.startTime", "2026-01-01T00:00:00Z")):
        assert update_problems(put(old, path, value), old) != []


def test_other_template_fields_of_suspended_job_are_immutable() -> None:
    changed = put(SUSPENDED, f"{POD}.containers.0.image", "registry.example.com/trainer:2")
    assert any("spec.template.spec: Invalid value" in text for text in update_problems(changed, SUSPENDED))
    with_pods: Obj = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}
    old = put(SUSPENDED, f"{POD}.affinity", with_pods)
    assert update_problems(put(old, f"{POD}.affinity.nodeAffinity", {}), old) == []
    assert update_problems(put(old, f"{POD}.affinity", REMOVE), old) != []


def test_gates_off_allow_changes_only_before_first_start() -> None:
    off = "MutablePodResourcesForSuspendedJobs=false,MutableSchedulingDirectivesForSuspendedJobs=false"
    gates = FeatureGates.parse(off)
    never, steered = put(JOB, "spec.suspend", True), STEERED[0]
    assert update_problems(put(never, *steered), never, gates) == []
    assert update_problems(put(never, *SIZED), never, gates) != []
    stopped = put(SUSPENDED, "status.startTime", "2026-01-01T00:00:00Z")
    assert update_problems(put(stopped, *steered), stopped, gates) != []


# -- status -----------------------------------------------------------------------------------------------------------


def true(*types: str) -> list[Obj]:
    return [{"type": type, "status": "True"} for type in types]


BEGAN, ENDED = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"
COMPLETE = {"conditions": true("SuccessCriteriaMet", "Complete"), "startTime": BEGAN, "completionTime": ENDED}
FAILED = {"conditions": true("FailureTarget", "Failed"), "startTime": BEGAN}


def found(new: Obj, old: Obj | None = None, job: Obj = JOB) -> list[str]:
    return status_problems({**job, "status": new}, {**job, "status": old or {}})


@pytest.mark.parametrize("status", [{}, {"active": 2, "ready": 1}, COMPLETE, FAILED])
def test_valid_job_status_is_accepted(status: Obj) -> None:
    assert found(status) == found(status, status) == []


def test_ready_that_nobody_wrote_is_not_told_of() -> None:
    assert [text for text in found({"active": -1}) if "ready" in text] == []


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"failed": -1}, "status.failed: Invalid value: -1"),
        ({"ready": 1}, "status.ready: Invalid value: 1: cannot set more ready pods than active"),
        ({"uncountedTerminatedPods": {"failed": [""]}}, 'failed[0]: Invalid value: "": must not be empty'),
        ({"uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["a"]}}, 'failed[0]: Duplicate value: "a"'),
        ({**COMPLETE, "active": 1}, "active>0 is invalid for finished job"),
        ({**COMPLETE, "terminating": 1}, "terminating>0 is invalid for finished job"),
        ({**COMPLETE, "uncountedTerminatedPods": {"failed": ["a"]}}, "status.uncountedTerminatedPods: Invalid value"),
        ({**FAILED, "startTime": None}, "status.startTime: Required value: startTime is required for finished job"),
        ({**COMPLETE, "completionTime": None}, "completionTime is required for Complete jobs"),
        ({**COMPLETE, "completionTime": "2025-01-01T00:00:00Z"}, "must be equal to or after `startTime`"),
        ({"completionTime": ENDED}, "cannot set completionTime when there is no Complete=True condition"),
        (
            {**COMPLETE, "conditions": true("Complete")},
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        ),
        (
            {**FAILED, "conditions": true("Failed")},
            "cannot set Failed=True condition without the FailureTarget=true condition",
        ),
        (
            {**COMPLETE, "conditions": true("Complete", "SuccessCriteriaMet", "FailureTarget")},
            "cannot set Complete=True and FailureTarget=true conditions",
        ),
        (
            {**FAILED, "conditions": true("Failed", "SuccessCriteriaMet", "FailureTarget")},
            "cannot set SuccessCriteriaMet=True and Failed=true conditions",
        ),
        ({"completedIndexes": "1"}, "cannot set non-empty completedIndexes when non-indexed completion mode"),
        ({"failedIndexes": "1"}, "cannot set non-null failedIndexes when backoffLimitPerIndex is null"),
    ],
)
def test_contradictory_job_status_is_refused(status: Obj, expected: str) -> None:
    assert any(expected in text for text in found(status)), found(status)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (COMPLETE, {"startTime": BEGAN}, "cannot disable the terminal Complete=True condition"),
        (FAILED, {**FAILED, "conditions": true("FailureTarget")}, "cannot disable the terminal Failed=True condition"),
        (FAILED, {**FAILED, "conditions": []}, "cannot disable the terminal FailureTarget=True condition"),
        ({"conditions": true("SuccessCriteriaMet")}, {}, "cannot disable the SuccessCriteriaMet=True condition"),
        ({"failed": 2}, {"failed": 1}, "status.failed: Invalid value: 1: cannot decrease the failed counter"),
        ({"succeeded": 2}, {}, "status.succeeded: Invalid value: 0: cannot decrease the succeeded counter"),
        ({"startTime": BEGAN}, {}, "field is immutable for unsuspended job once set"),
        (
            COMPLETE,
            {**COMPLETE, "completionTime": "2026-01-02T00:00:00Z"},
            'status.completionTime: Invalid value: "2026-01-02T00:00:00Z": field is immutable',
        ),
    ],
)
def test_job_status_facts_cannot_be_removed(old: Obj, new: Obj, expected: str) -> None:
    assert any(expected in text for text in found(new, old)), found(new, old)


def test_suspended_job_may_clear_start_time() -> None:
    assert found({}, {"startTime": BEGAN}, put(JOB, "spec.suspend", True)) == []


def test_shrunken_indexed_job_may_lower_succeeded() -> None:
    assert found({"succeeded": 1}, {"succeeded": 2}, GANG) == []
    assert found({"succeeded": 1}, {"succeeded": 2}, INDEXED) != []


@pytest.mark.parametrize(
    ("completed", "failed", "expected"),
    [
        ("0,2", "1", ""),
        ("0-1", "", ""),
        (
            "4",
            None,
            'Invalid value: "4": error parsing completedIndexes: too large index: "4"',
        ),
        ("", "2,2", "error parsing failedIndexes: non-increasing order, previous: 2, current: 2"),
        ("0,2", "1-3", "failedIndexes and completedIndexes overlap at index: 2"),
        ("0-1", "1", "failedIndexes and completedIndexes overlap at index: 1"),
    ],
)
def test_indexes_in_job_status_are_validated(completed: str, failed: str | None, expected: str) -> None:
    status = {"completedIndexes": completed, **({"failedIndexes": failed} if failed is not None else {})}
    texts = found(status, job=PER_INDEX)
    assert any(expected in text for text in texts) if expected else texts == []
    assert found(status, status, PER_INDEX) == []  # what stands may be written again
