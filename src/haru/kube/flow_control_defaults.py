"""The FlowSchemas and PriorityLevelConfigurations that every cluster starts with.

They are what 1.36 shows and what other FlowSchemas refer to; this server bounds its requests without priority levels.
Source: the mandatory and the suggested configuration of API Priority and Fairness, as behaviour (KEP 1040).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final, NamedTuple

from haru.kube.meta import Obj

MANAGER: Final = "api-priority-and-fairness-config-producer-v1"
API_VERSION: Final = "flowcontrol.apiserver.k8s.io/v1"
AUTOUPDATE: Final = "apf.kubernetes.io/autoupdate-spec"
MANDATORY: Final = frozenset({"exempt", "catch-all"})
"""The schemas and levels that nobody can change for good."""
_QUEUE_LENGTH: Final = 50


class _Level(NamedTuple):
    """A level that shares seats; without queues it refuses what exceeds them."""

    shares: int
    lendable_percent: int
    queues: int = 0
    hand_size: int = 6


_LEVELS: Final = {
    "catch-all": _Level(5, 0),
    "global-default": _Level(20, 50, 128),
    "leader-election": _Level(10, 0, 16, 4),
    "node-high": _Level(40, 25, 64),
    "system": _Level(30, 33, 64),
    "workload-high": _Level(40, 50, 128),
    "workload-low": _Level(100, 90, 128),
}


def _group(*names: str) -> list[Obj]:
    return [{"kind": "Group", "group": {"name": name}} for name in names]


def _user(*names: str) -> list[Obj]:
    return [{"kind": "User", "user": {"name": name}} for name in names]


def _resources(verbs: str, group: str, *resources: str, cluster: bool = False) -> Obj:
    scope = {"clusterScope": True} if cluster else {}
    return {
        "verbs": verbs.split(), "apiGroups": [group], "resources": list(resources), "namespaces": ["*"], **scope
    }  # fmt: skip


_SYSTEM_ACCOUNTS: Final[list[Obj]] = [
    {"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": "*"}}
]
_EVERYBODY: Final = _group("system:unauthenticated", "system:authenticated")
_COMPONENTS: Final = _user("system:kube-controller-manager", "system:kube-scheduler")
_LEASES: Final = ("coordination.k8s.io", "leases")
_ANYTHING: Final[Obj] = {
    "resourceRules": [_resources("*", "*", "*", cluster=True)],
    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
}
_PROBES: Final[Obj] = {"nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}]}
_ELECTIONS: Final[Obj] = {"resourceRules": [_resources("get create update", *_LEASES)]}
_OF_NODES: Final[Obj] = {
    "resourceRules": [_resources("*", "", "nodes", "nodes/status", cluster=True), _resources("*", *_LEASES)]
}
_SCHEMAS: Final = (
    ("exempt", "exempt", 1, "", _group("system:masters"), _ANYTHING),
    ("probes", "exempt", 2, "", _EVERYBODY, _PROBES),
    ("system-leader-election", "leader-election", 100, "ByUser", [*_COMPONENTS, *_SYSTEM_ACCOUNTS], _ELECTIONS),
    ("system-node-high", "node-high", 400, "ByUser", _group("system:nodes"), _OF_NODES),
    ("system-nodes", "system", 500, "ByUser", _group("system:nodes"), _ANYTHING),
    ("kube-controller-manager", "workload-high", 800, "ByNamespace", _COMPONENTS[:1], _ANYTHING),
    ("kube-scheduler", "workload-high", 800, "ByNamespace", _COMPONENTS[1:], _ANYTHING),
    ("kube-system-service-accounts", "workload-high", 900, "ByNamespace", _SYSTEM_ACCOUNTS, _ANYTHING),
    ("service-accounts", "workload-low", 9000, "ByUser", _group("system:serviceaccounts"), _ANYTHING),
    ("global-default", "global-default", 9900, "ByUser", _EVERYBODY, _ANYTHING),
    ("catch-all", "catch-all", 10000, "ByUser", _EVERYBODY, _ANYTHING),
)
"""Name, priority level, precedence, what tells flows apart, whose requests, and which."""


def flow_control_objects() -> Iterator[Obj]:
    """Make the priority levels, then the schemas that refer to them."""
    yield _object("PriorityLevelConfiguration", "exempt", {"type": "Exempt", "exempt": {}})
    for name, level in _LEVELS.items():
        yield _object("PriorityLevelConfiguration", name, {"type": "Limited", "limited": _limited(level)})
    for name, of_level, precedence, flows, subjects, rule in _SCHEMAS:
        spec: Obj = {"priorityLevelConfiguration": {"name": of_level}, "matchingPrecedence": precedence}
        if flows:
            spec["distinguisherMethod"] = {"type": flows}
        yield _object("FlowSchema", name, {**spec, "rules": [{"subjects": subjects, **rule}]})


def mandatory_spec(kind: str, name: str) -> Obj | None:
    """The spec that a schema or level of this name has in every cluster; None for those that may be changed."""
    return _mandatory_specs()[kind, name] if name in MANDATORY else None


@cache
def _mandatory_specs() -> Mapping[tuple[str, str], Obj]:
    found = ((obj["kind"], obj["metadata"]["name"], obj["spec"]) for obj in flow_control_objects())
    return {(kind, name): spec for kind, name, spec in found if name in MANDATORY}


def _limited(level: _Level) -> Obj:
    response: Obj = {"type": "Reject"}
    if level.queues:
        queuing = {"queues": level.queues, "handSize": level.hand_size, "queueLengthLimit": _QUEUE_LENGTH}
        response = {"type": "Queue", "queuing": queuing}
    return {
        "nominalConcurrencyShares": level.shares,
        "lendablePercent": level.lendable_percent,
        "limitResponse": response,
    }


def _object(kind: str, name: str, spec: Obj) -> Obj:
    metadata = {"name": name, "annotations": {AUTOUPDATE: "true"}}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
