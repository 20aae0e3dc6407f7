from __future__ import annotations

import pytest

from haru.kube.json_form import json_form, served
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj

POD = known_kind("v1", "Pod")


def pod(spec: Obj) -> Obj:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec, "status": {}}


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ({"containers": [], "nodeName": ""}, {"containers": None}),
        ({"containers": None, "hostNetwork": False}, {"containers": None}),
        ({}, {"containers": None}),
        ({"containers": None, "priority": 0, "enableServiceLinks": False}, None),
        ({"containers": None, "securityContext": {}}, None),
        ({"containers": [{"name": "a"}]}, {"containers": [{"name": "a", "resources": {}}]}),
        (
            {"containers": [{"name": "a", "resources": {}, "stdin": False}]},
            {"containers": [{"name": "a", "resources": {}}]},
        ),
        ({"containers": None, "volumes": [{"name": "a", "emptyDir": {}}]}, None),
    ],
)
def test_spec_of_pod_is_written_as_its_go_type_is(given: Obj, written: Obj | None) -> None:
    assert json_form(pod(given), POD)["spec"] == (given if written is None else written)


def test_object_in_its_form_is_returned_itself() -> None:
    complete = json_form(pod({"containers": [{"name": "a", "image": "b"}]}), POD)
    assert json_form(complete, POD) is complete


def test_absent_status_is_written_with_its_required_members() -> None:
    kind = known_kind("apps/v1", "DaemonSet")
    made = json_form({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "a"}}, kind)
    zeroes = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
    assert made["status"] == dict.fromkeys(zeroes, 0)
    assert made["spec"] == {
        "selector": None,
        "template": {"metadata": {}, "spec": {"containers": None}},
        "updateStrategy": {},
    }


def test_condition_without_time_is_written_with_null() -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    (condition,) = json_form(node, known_kind("v1", "Node"))["status"]["conditions"]
    assert condition == {"type": "Ready", "status": "True", "lastHeartbeatTime": None, "lastTransitionTime": None}


def test_schema_within_items_of_a_definition_is_written_alike() -> None:
    kind = known_kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    schema: Obj = {"type": "array", "items": {"type": "string", "description": "", "minLength": 0}}
    version = {"name": "v1", "schema": {"openAPIV3Schema": schema}}
    made = json_form({"apiVersion": kind.api_version, "kind": kind.kind, "spec": {"versions": [version]}}, kind)
    (written,) = made["spec"]["versions"]
    assert written["schema"]["openAPIV3Schema"]["items"] == {"type": "string", "minLength": 0}
    assert (written["served"], written["storage"]) == (False, False)


def test_object_in_another_version_is_written_as_that_one_is() -> None:
    stored = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {},
        "spec": {"maxReplicas": 2},
    }
    shown = served(stored, known_kind("autoscaling/v1", "HorizontalPodAutoscaler"))
    assert shown["status"] == {"currentReplicas": 0, "desiredReplicas": 0}
    assert shown["spec"]["scaleTargetRef"] == {"kind": "", "name": ""}


def test_what_is_as_in_a_known_object_is_left_and_the_rest_is_written() -> None:
    known = json_form(pod({"containers": [{"name": "a"}], "securityContext": {"runAsUser": 1}}), POD)
    changed = {**known, "spec": {**known["spec"], "containers": [{"name": "b", "stdin": False}], "nodeName": ""}}
    written = json_form(changed, POD, known)
    assert written == json_form(changed, POD)
    assert written["spec"] == {
        "containers": [{"name": "b", "resources": {}}],
        "securityContext": {"runAsUser": 1},
    }
    assert written["spec"]["securityContext"] is known["spec"]["securityContext"]
    same = {**known, "spec": {**known["spec"]}}
    assert json_form(same, POD, known) is same


def test_list_that_was_sent_empty_is_judged_and_not_written() -> None:
    kind = known_kind("resource.k8s.io/v1", "ResourceSlice")
    device: Obj = {"name": "a", "attributes": {"x": {"ints": []}}}
    slice_ = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}, "spec": {"devices": [device]}}
    judged = json_form(slice_, kind, empties="kept")["spec"]["devices"][0]
    assert judged["attributes"] == {"x": {"ints": []}}
    assert json_form(slice_, kind)["spec"]["devices"][0]["attributes"] == {"x": {}}
