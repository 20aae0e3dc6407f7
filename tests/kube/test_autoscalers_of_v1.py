"""What autoscaling/v1 has no field for, in annotations as kube-apiserver 1.36 writes them."""

from __future__ import annotations

import json

from haru.kube.autoscaling import autoscaler_to_v1, autoscaler_to_v2
from haru.kube.gates import FeatureGates
from haru.kube.kinds import known_kind
from haru.kube.validation import validate_create

_BEHAVIOR = "autoscaling.alpha.kubernetes.io/behavior"
_POLICY = {"type": "Pods", "value": 4, "periodSeconds": 15}
_TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}


def test_behavior_is_carried_under_names_of_go_and_read_under_either() -> None:
    behavior = {"scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [_POLICY]}}
    old = autoscaler_to_v1({"metadata": {"name": "a"}, "spec": {"maxReplicas": 3, "behavior": behavior}})
    carried = old["metadata"]["annotations"]
    rules = {"StabilizationWindowSeconds": 0, "SelectPolicy": "Max", "Tolerance": None}
    policies = [{"Type": "Pods", "Value": 4, "PeriodSeconds": 15}]
    assert json.loads(carried[_BEHAVIOR]) == {"ScaleUp": {**rules, "Policies": policies}, "ScaleDown": None}
    for text in (carried[_BEHAVIOR], json.dumps(behavior)):
        old["metadata"]["annotations"] = {_BEHAVIOR: text}
        assert autoscaler_to_v2(old)["spec"]["behavior"] == behavior


def test_wrong_utilization_is_told_after_the_metrics_of_the_annotation() -> None:
    memory = {"type": "Resource", "resource": {"name": "memory", "targetAverageUtilization": 50}}
    annotations = {"autoscaling.alpha.kubernetes.io/metrics": json.dumps([memory])}
    kind = known_kind("autoscaling/v1", "HorizontalPodAutoscaler")
    autoscaler = {
        "apiVersion": "autoscaling/v1",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "a", "namespace": "n", "annotations": annotations},
        "spec": {"maxReplicas": 3, "scaleTargetRef": _TARGET, "targetCPUUtilizationPercentage": 0},
    }
    (error,) = validate_create(autoscaler, kind, FeatureGates({}), lambda expression: None)
    assert error.field == "spec.metrics[1].resource.target.averageUtilization"
