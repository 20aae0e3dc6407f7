"""Defaults of RBAC, autoscaling, admission registration, flow control, certificates and coordination."""

from __future__ import annotations

from haru.kube.autoscaling import DEFAULT_UTILIZATION, carries_metrics
from haru.kube.cloning import clone
from haru.kube.custom.definitions import GROUP, fill_definition
from haru.kube.defaulting.filling import Fillers, fill, fill_unset, items, part, section
from haru.kube.gates import FeatureGates
from haru.kube.meta import Obj

_RBAC = "rbac.authorization.k8s.io"
_CPU_80: Obj = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": DEFAULT_UTILIZATION}},
}
_SCALE_UP: Obj = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ],
}
_SCALE_DOWN: Obj = {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}


def _binding(binding: Obj, gates: FeatureGates) -> None:
    fill(section(binding, "roleRef"), apiGroup=_RBAC)
    for subject in items(binding, "subjects"):
        if subject.get("kind") in ("User", "Group"):
            fill(subject, apiGroup=_RBAC)


def _autoscaler(autoscaler: Obj, gates: FeatureGates) -> None:
    spec = section(autoscaler, "spec")
    fill_unset(spec, minReplicas=1)
    if autoscaler.get("apiVersion") != "autoscaling/v2":
        if not carries_metrics(autoscaler):
            fill_unset(spec, targetCPUUtilizationPercentage=DEFAULT_UTILIZATION)
        return
    if not spec.get("metrics"):
        spec["metrics"] = [clone(_CPU_80)]
    behavior = part(spec, "behavior")
    if behavior is not None:
        behavior["scaleUp"] = {**clone(_SCALE_UP), **_set_fields(behavior.get("scaleUp"))}
        behavior["scaleDown"] = {**clone(_SCALE_DOWN), **_set_fields(behavior.get("scaleDown"))}


def _set_fields(obj: Obj | None) -> Obj:
    return {name: value for name, value in (obj or {}).items() if value is not None}


def _webhook_configuration(configuration: Obj, gates: FeatureGates) -> None:
    for webhook in items(configuration, "webhooks"):
        fill_unset(
            webhook,
            failurePolicy="Fail",
            matchPolicy="Equivalent",
            namespaceSelector={},
            objectSelector={},
            timeoutSeconds=10,
        )
        if configuration.get("kind") == "MutatingWebhookConfiguration":
            fill_unset(webhook, reinvocationPolicy="Never")
        for rule in items(webhook, "rules"):
            fill_unset(rule, scope="*")
        service = part(webhook, "clientConfig", "service")
        if service is not None:
            fill_unset(service, port=443)


def _admission_policy(policy: Obj, gates: FeatureGates) -> None:
    spec = section(policy, "spec")
    fill_unset(spec, failurePolicy="Fail")
    constraints = part(spec, "matchConstraints")
    if constraints is not None:
        _match_resources(constraints)


def _admission_policy_binding(binding: Obj, gates: FeatureGates) -> None:
    spec = section(binding, "spec")
    resources = part(spec, "matchResources")
    if resources is not None:
        _match_resources(resources)


def _match_resources(resources: Obj) -> None:
    fill_unset(resources, matchPolicy="Equivalent", namespaceSelector={}, objectSelector={})
    for rule in (*items(resources, "resourceRules"), *items(resources, "excludeResourceRules")):
        fill_unset(rule, scope="*")


def _flow_schema(schema: Obj, gates: FeatureGates) -> None:
    fill(section(schema, "spec"), matchingPrecedence=1000)


def _priority_level(level: Obj, gates: FeatureGates) -> None:
    spec = section(level, "spec")
    limited = part(spec, "limited")
    if limited is not None:
        fill_unset(limited, nominalConcurrencyShares=30, lendablePercent=0)
        queuing = part(limited, "limitResponse", "queuing")
        if queuing is not None:
            fill(queuing, queues=64, handSize=8, queueLengthLimit=50)
    exempt = part(spec, "exempt")
    if exempt is not None:
        fill_unset(exempt, nominalConcurrencyShares=0, lendablePercent=0)


def _custom_resource_definition(definition: Obj, gates: FeatureGates) -> None:
    spec = section(definition, "spec")
    names = section(spec, "names")
    if names.get("kind"):
        fill(names, singular=str(names["kind"]).lower(), listKind=f"{names['kind']}List")
    if spec.get("conversion") is None:
        spec["conversion"] = {"strategy": "None"}
    stored = [version.get("name") or "" for version in items(spec, "versions") if version.get("storage")]
    if stored and not (part(definition, "status") or {}).get("storedVersions"):
        section(definition, "status")["storedVersions"] = stored[:1]
    service = part(spec, "conversion", "webhook", "clientConfig", "service")
    if service is not None:
        fill_unset(service, port=443)


def _api_service(service: Obj, gates: FeatureGates) -> None:
    reference = part(service, "spec", "service")
    if reference is not None:
        fill_unset(reference, port=443)


_ADMISSION = "admissionregistration.k8s.io"

FILLERS: Fillers = {
    (GROUP, "CustomResourceDefinition"): lambda definition, gates: fill_definition(definition),
    (_RBAC, "RoleBinding"): _binding,
    (_RBAC, "ClusterRoleBinding"): _binding,
    ("autoscaling", "HorizontalPodAutoscaler"): _autoscaler,
    (_ADMISSION, "MutatingWebhookConfiguration"): _webhook_configuration,
    (_ADMISSION, "ValidatingWebhookConfiguration"): _webhook_configuration,
    (_ADMISSION, "ValidatingAdmissionPolicy"): _admission_policy,
    (_ADMISSION, "MutatingAdmissionPolicy"): _admission_policy,
    (_ADMISSION, "ValidatingAdmissionPolicyBinding"): _admission_policy_binding,
    (_ADMISSION, "MutatingAdmissionPolicyBinding"): _admission_policy_binding,
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"): _flow_schema,
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"): _priority_level,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _custom_resource_definition,
    ("apiregistration.k8s.io", "APIService"): _api_service,
}
