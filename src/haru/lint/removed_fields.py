"""Name kinds and fields of earlier API versions, and what replaced them.

Kinds and fields of the alphas of DRA (KEP 3063, 4381 before 1.32), of gang scheduling before 1.36 (KEP 4671) and of the
first DeviceTaintRule (KEP 5055). A field is known by the path of names that leads to it, without indexes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple


class Gone(NamedTuple):
    """Why something is gone, and what is written instead."""

    reason: str
    remedy: str


KINDS: Mapping[str, Gone] = {
    "ResourceClass": Gone(
        "the model of classes with driver controllers was dropped with 1.31; a class names no driver",
        "a DeviceClass (resource.k8s.io/v1): selectors[].cel.expression says which devices, config[].opaque carries "
        "parameters",
    ),
    "ResourceClassParameters": Gone(
        "parameter objects were dropped with 1.31",
        "parameters inline in the DeviceClass, below spec.config[].opaque.parameters",
    ),
    "ResourceClaimParameters": Gone(
        "parameter objects were dropped with 1.31",
        "parameters inline in the ResourceClaim, below spec.devices.config[].opaque.parameters; what selects devices "
        "is a CEL selector of the request",
    ),
    "PodSchedulingContext": Gone(
        "the scheduler allocates devices itself since 1.32 and negotiates with no driver",
        "nothing: leave the object out",
    ),
    "PodScheduling": Gone("renamed in 1.28 and dropped with 1.32", "nothing: leave the object out"),
    "CompositePodGroup": Gone("composite groups come with 1.37", "one PodGroup (scheduling.k8s.io/v1alpha2) per gang"),
    "PodSecurityPolicy": Gone("removed in 1.25", "the pod security labels of the Namespace"),
}

_CLAIM_SPEC = r"(?:spec\.spec|spec)"
_EXACTLY = "{spec}.devices.requests[].exactly"

_FIELDS: tuple[tuple[str, str, str, str], ...] = (
    # kinds, path, reason, remedy
    (
        "ResourceClaim ResourceClaimTemplate",
        rf"({_CLAIM_SPEC})\.resourceClassName",
        "classes are chosen per request since 1.31",
        r"\1.devices.requests[].exactly.deviceClassName",
    ),
    (
        "ResourceClaim ResourceClaimTemplate",
        rf"({_CLAIM_SPEC})\.allocationMode",
        "Immediate and WaitForFirstConsumer are gone: the scheduler allocates when a pod needs the claim",
        r"no allocationMode here; ExactCount or All stands in \1.devices.requests[].exactly.allocationMode",
    ),
    (
        "ResourceClaim ResourceClaimTemplate",
        rf"({_CLAIM_SPEC})\.parametersRef",
        "parameter objects were dropped with 1.31",
        r"\1.devices.config[].opaque.parameters for the driver, \1.devices.requests[].exactly.selectors for the choice",
    ),
    (
        "ResourceClaim ResourceClaimTemplate",
        r"(.*\.requests)\.(?:exactly\.)?(?:resourceClassName|deviceClass|className)",
        "the class is named by deviceClassName",
        r"deviceClassName",
    ),
    (
        "ResourceClaim ResourceClaimTemplate",
        rf"({_CLAIM_SPEC})\.(requests|constraints|config)",
        "requests, constraints and config stand below devices",
        r"\1.devices.\2",
    ),
    (
        "ResourceClaim",
        r"spec\.spec",
        "only a template nests one spec in another",
        "the content of spec.spec directly below spec, or kind: ResourceClaimTemplate",
    ),
    (
        "ResourceClaimTemplate",
        r"spec\.devices",
        "a template's spec holds the spec of the claims to be made",
        "spec.spec.devices",
    ),
    (
        "DeviceClass",
        r"(?:spec\.)?(?:driverName|driver)",
        "a class names no driver",
        'spec.selectors[].cel.expression: device.driver == "DRIVER"',
    ),
    ("DeviceClass", r"(?:spec\.)?parametersRef", "parameters stand inline", "spec.config[].opaque.parameters"),
    (
        "DeviceClass",
        r"spec\.suitableNodes",
        "a class chooses devices, not nodes; dropped with 1.32",
        "a nodeSelector in the pod",
    ),
    (
        "DeviceTaintRule",
        r"spec\.deviceSelector\.(?:deviceClassName|selectors)",
        "only the first alpha selected by class or expression",
        "spec.deviceSelector with driver, pool and device",
    ),
    (
        "Pod",
        r"(.*)resourceClaims\.source",
        "the nesting was removed in 1.31",
        "resourceClaimName or resourceClaimTemplateName directly beside name",
    ),
    (
        "Pod",
        r"(.*\.|)workloadRef",
        "pods of 1.36 name their PodGroup, not a Workload",
        "schedulingGroup: {podGroupName: NAME}",
    ),
    (
        "PodGroup",
        r"spec\.min(?:Member|Available)",
        "1.36 has the gang's size in its policy",
        "spec.schedulingPolicy.gang.minCount",
    ),
    ("PodGroup", r"spec\.minCount", "the gang's size stands in its policy", "spec.schedulingPolicy.gang.minCount"),
    ("PodGroup", r"spec\.(?:policy|gang|basic)", "the policy stands below schedulingPolicy", "spec.schedulingPolicy"),
    (
        "PodGroup",
        r"spec\.workloadRef",
        "1.36 refers to a template of a Workload",
        "spec.podGroupTemplateRef.workload with workloadName and podGroupTemplateName",
    ),
    (
        "Workload",
        r"spec\.podGroups",
        "1.36 has templates, the groups are objects of their own",
        "spec.podGroupTemplates",
    ),
    ("Workload", r"spec\.podGroup(?:Templates|s)\.policy", "renamed in 1.36", "schedulingPolicy"),
    (
        "Workload",
        r"spec\.podGroup(?:Templates|s)\.replicas",
        "groups are objects of their own since 1.36",
        "one PodGroup object per replica",
    ),
)


def field(kind: str, names: str) -> Gone | None:
    """What became of a field; `names` is its path without indexes. Pod templates count as pods."""
    for kinds, pattern, reason, remedy in _FIELDS:
        holders = kinds.split()
        if kind not in holders and not ("Pod" in holders and kind in POD_HOLDERS):
            continue
        match = re.fullmatch(pattern, names)
        if match:
            return Gone(reason, match.expand(remedy))
    return None


POD_HOLDERS = frozenset(
    {"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicationController", "PodTemplate"}
)
_INDEX = re.compile(r"\[\d+\]")


def without_indexes(path: str) -> str:
    """`spec.a[0].b` -> `spec.a.b`."""
    return _INDEX.sub("", path)
