import pytest

from haru.kube import meta
from haru.kube.resources import claimed_resources, pod_requests


def test_metadata_helpers_return_key_uid_and_finalizers() -> None:
    pod = {"metadata": {"name": "p", "namespace": "n", "uid": "u", "finalizers": ["f"]}}
    assert (meta.key_of(pod), meta.key_of({"metadata": {"name": "x"}}), meta.uid_of(pod)) == ("n/p", "x", "u")
    assert meta.has_finalizer(pod, "f") and not meta.has_finalizer(pod, "g")
    assert meta.name_of({}) == "" and meta.labels_of({}) == {}


def test_controller_reference_is_found() -> None:
    owners = [{"name": "a"}, {"name": "b", "controller": True}]
    assert meta.controller_of({"metadata": {"ownerReferences": owners}}) == owners[1]
    assert meta.controller_of({"metadata": {}}) is None


def test_condition_keeps_transition_time_while_status_is_unchanged() -> None:
    first = meta.set_condition(None, {"type": "Ready", "status": "True"}, "t1")
    assert first == [{"type": "Ready", "status": "True", "lastTransitionTime": "t1"}]
    same = meta.set_condition(first, {"type": "Ready", "status": "True", "reason": "R"}, "t2")
    assert same[0]["lastTransitionTime"] == "t1" and same[0]["reason"] == "R"
    other = meta.set_condition(same, {"type": "Ready", "status": "False"}, "t3")
    assert other[0]["lastTransitionTime"] == "t3"
    assert first[0]["status"] == "True"
    assert meta.get_condition({"status": {"conditions": other}}, "Ready") is other[0]


TAINT = {"key": "gpu", "value": "5", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "value": "5"}, True),
        ({"key": "gpu", "operator": "Equal", "value": "6"}, False),
        ({"key": "gpu", "operator": "Lt", "value": "6"}, True),
        ({"key": "gpu", "operator": "Gt", "value": "6"}, False),
        ({"key": "gpu", "operator": "Gt", "value": "x"}, False),
        ({"key": "cpu", "operator": "Exists"}, False),
        ({"value": "5"}, False),
    ],
)
def test_toleration_matches_taint(toleration, covers: bool) -> None:
    assert meta.tolerates([toleration], TAINT) is covers


def container(name: str, cpu: str, **extra: object) -> dict:
    return {"name": name, "resources": {"requests": {"cpu": cpu}}, **extra}


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": [container("a", "1"), container("b", "500m")]}, "1500m"),
        ({"containers": [container("a", "1")], "initContainers": [container("i", "3")]}, "3"),
        ({"containers": [container("a", "1")], "initContainers": [container("s", "1", restartPolicy="Always")]}, "2"),
        (
            {
                "containers": [container("a", "1")],
                "initContainers": [container("s", "1", restartPolicy="Always"), container("i", "2")],
            },
            "3",
        ),
        (
            {
                "containers": [container("a", "1")],
                "initContainers": [container("i", "2"), container("s", "1", restartPolicy="Always")],
            },
            "2",
        ),
        ({"containers": [container("a", "1")], "resources": {"requests": {"cpu": "4"}}}, "4"),
        ({"containers": [container("a", "1")], "overhead": {"cpu": "250m"}}, "1250m"),
    ],
)
def test_pod_requests_sum_containers_and_init_containers(spec, cpu: str) -> None:
    assert str(pod_requests({"spec": spec})["cpu"]) == cpu


def test_extended_resources_count_beside_pod_level_resources() -> None:
    spec = {
        "containers": [{"name": "a", "resources": {"requests": {"nvidia.com/gpu": "2"}}}],
        "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "9"}},
    }
    assert {name: str(q) for name, q in pod_requests({"spec": spec}).items()} == {"cpu": "1", "nvidia.com/gpu": "2"}


def test_mapped_device_amounts_are_added_below_pod_level_requests() -> None:
    entries = [
        {"resourceClaimName": "a", "containers": ["c"], "resources": {"cpu": "500m", "memory": "1Gi"}},
        {"resourceClaimName": "b", "containers": ["c"], "resources": {"cpu": "2"}},
    ]
    pod = {"spec": {"resources": {"requests": {"memory": "4Gi"}}}}
    status = {"nodeAllocatableResourceClaimStatuses": entries}
    assert {name: str(q) for name, q in claimed_resources({**pod, "status": status}).items()} == {"cpu": "2500m"}
    assert {name: str(q) for name, q in claimed_resources({}, entries).items()} == {"cpu": "2500m", "memory": "1Gi"}
    assert claimed_resources({**pod, "status": status}, ()) == {}


@pytest.mark.parametrize(("reason", "cpu"), [("Deferred", "3"), ("Infeasible", "2")])
def test_deferred_and_infeasible_resize_count_differently(reason: str, cpu: str) -> None:
    pod = {
        "spec": {"containers": [container("a", "3")]},
        "status": {
            "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
            "containerStatuses": [
                {"name": "a", "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "2"}}}
            ],
        },
    }
    assert str(pod_requests(pod)["cpu"]) == cpu
