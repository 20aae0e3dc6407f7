"""The cluster roles and bindings that a cluster is born with.

Roles of people (cluster-admin, admin, edit, view), of everybody (discovery, basic-user, public-info-viewer), of nodes,
of the scheduler and of the controllers. Source: RBAC bootstrap policy and the tables of KEP 4381, 4671, 5547.
"""

from __future__ import annotations

from typing import Any

from haru.apiserver.auth.tokens.discovery import PATHS as OPENID_PATHS

Obj = dict[str, Any]

_API = "rbac.authorization.k8s.io/v1"
_LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}
AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"
_READ = ("get", "list", "watch")
_WRITE = ("create", "delete", "deletecollection", "patch", "update")
_EVENTS = (("create", "patch", "update"), ("", "events.k8s.io"), ("events",))

KUBELET_CLIENT = "kube-apiserver-kubelet-client"
"""Whom the API server is to kubelets."""
RuleText = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
"""Verbs, API groups, resources."""

_NAMESPACED_CORE = (
    "configmaps",
    "endpoints",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "serviceaccounts",
    "services",
)
_NAMESPACED = (
    ("apps", ("controllerrevisions", "daemonsets", "deployments", "replicasets", "statefulsets")),
    ("autoscaling", ("horizontalpodautoscalers",)),
    ("batch", ("cronjobs", "jobs")),
    ("discovery.k8s.io", ("endpointslices",)),
    ("networking.k8s.io", ("ingresses", "networkpolicies")),
    ("policy", ("poddisruptionbudgets",)),
    ("resource.k8s.io", ("resourceclaims", "resourceclaimtemplates")),
    ("scheduling.k8s.io", ("podgroups", "workloads")),
    ("coordination.k8s.io", ("leases",)),
)


def _rule(verbs: tuple[str, ...], groups: tuple[str, ...], resources: tuple[str, ...]) -> Obj:
    return {"apiGroups": list(groups), "resources": list(resources), "verbs": list(verbs)}


def _rules(*texts: RuleText) -> list[Obj]:
    return [_rule(*text) for text in texts]


def _role(name: str, rules: list[Obj], labels: dict[str, str] | None = None) -> Obj:
    metadata: Obj = {"name": name, "labels": {**_LABELS, **(labels or {})}, "annotations": {AUTOUPDATE: "true"}}
    return {"apiVersion": _API, "kind": "ClusterRole", "metadata": metadata, "rules": rules}


def _aggregate(name: str, onto: str = "") -> Obj:
    role = _role(name, [], {f"rbac.authorization.k8s.io/aggregate-to-{onto}": "true"} if onto else None)
    label = {f"rbac.authorization.k8s.io/aggregate-to-{name}": "true"}
    del role["rules"]
    role["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": label}]}
    return role


def _binding(name: str, *subjects: Obj, role: str = "") -> Obj:
    return {
        "apiVersion": _API,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name, "labels": dict(_LABELS), "annotations": {AUTOUPDATE: "true"}},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role or name},
        "subjects": list(subjects),
    }


def _group(name: str) -> Obj:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name}


def _user(name: str) -> Obj:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}


def _account(name: str) -> Obj:
    return {"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}


def _view_rules() -> list[Obj]:
    core: tuple[str, ...] = (
        *_NAMESPACED_CORE,
        "bindings",
        "events",
        "limitranges",
        "namespaces",
        "pods/log",
        "pods/status",
    )
    core += ("resourcequotas", "replicationcontrollers/scale", "services/status")
    rules = [_rule(_READ, ("",), core)]
    for group, plurals in _NAMESPACED:
        rules.append(_rule(_READ, (group,), tuple(p for name in plurals for p in (name, f"{name}/status"))))
    rules.append(_rule(_READ, ("apps",), ("deployments/scale", "replicasets/scale", "statefulsets/scale")))
    return rules


def _edit_rules() -> list[Obj]:
    rules = [
        _rule(_WRITE, ("",), (*_NAMESPACED_CORE, "pods/eviction", "pods/ephemeralcontainers", "pods/resize")),
        _rule((*_READ, *_WRITE), ("",), ("secrets",)),
        _rule(("create",), ("",), ("serviceaccounts/token",)),
        # By WebSocket it is both that are asked for.
        _rule(("create", "get"), ("",), ("pods/attach", "pods/exec", "pods/portforward")),
        _rule((*_READ, *_WRITE), ("",), ("pods/proxy", "services/proxy")),
        _rule(("impersonate",), ("",), ("serviceaccounts",)),
        _rule(_WRITE, ("",), ("events", "replicationcontrollers/scale")),
    ]
    rules += [_rule(_WRITE, (group,), plurals) for group, plurals in _NAMESPACED]
    rules.append(_rule(_WRITE, ("apps",), ("deployments/scale", "replicasets/scale", "statefulsets/scale")))
    return rules


def _people() -> list[Obj]:
    everything = [_rule(("*",), ("*",), ("*",)), {"nonResourceURLs": ["*"], "verbs": ["*"]}]
    admin_rules = [
        _rule((*_READ, *_WRITE), ("rbac.authorization.k8s.io",), ("roles", "rolebindings")),
        _rule(("create",), ("authorization.k8s.io",), ("localsubjectaccessreviews",)),
    ]
    to = "rbac.authorization.k8s.io/aggregate-to-"
    return [
        _role("cluster-admin", everything),
        _aggregate("admin"),
        _aggregate("edit", "admin"),
        _aggregate("view", "edit"),
        _role("system:aggregate-to-admin", admin_rules + _edit_rules() + _view_rules(), {f"{to}admin": "true"}),
        _role("system:aggregate-to-edit", _edit_rules() + _view_rules(), {f"{to}edit": "true"}),
        _role("system:aggregate-to-view", _view_rules(), {f"{to}view": "true"}),
        _binding("cluster-admin", _group("system:masters")),
    ]


def _everybody() -> list[Obj]:
    discovery = ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz"]
    public = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
    openid = [f"{path}{end}" for path in OPENID_PATHS for end in ("", "/")]
    reviews = ("selfsubjectaccessreviews", "selfsubjectrulesreviews")
    return [
        _role("system:discovery", [{"nonResourceURLs": [*discovery, "/version", "/version/"], "verbs": ["get"]}]),
        _role("system:public-info-viewer", [{"nonResourceURLs": public, "verbs": ["get"]}]),
        _role(
            "system:basic-user",
            _rules(
                (("create",), ("authorization.k8s.io",), reviews),
                (("create",), ("authentication.k8s.io",), ("selfsubjectreviews",)),
            ),
        ),
        _role(
            "system:auth-delegator",
            _rules(
                (("create",), ("authentication.k8s.io",), ("tokenreviews",)),
                (("create",), ("authorization.k8s.io",), ("subjectaccessreviews",)),
            ),
        ),
        _role("system:monitoring", [{"nonResourceURLs": ["/metrics", *public], "verbs": ["get"]}]),
        _role("system:service-account-issuer-discovery", [{"nonResourceURLs": openid, "verbs": ["get"]}]),
        _binding("system:discovery", _group("system:authenticated")),
        _binding("system:service-account-issuer-discovery", _group("system:serviceaccounts")),
        _binding("system:basic-user", _group("system:authenticated")),
        _binding("system:public-info-viewer", _group("system:authenticated"), _group("system:unauthenticated")),
        _binding("system:monitoring", _group("system:monitoring")),
    ]


def _scheduler() -> list[Obj]:
    claims = ("resourceclaims", "resourceclaims/status")
    rules = _rules(
        _EVENTS,
        (("create", "get", "list", "watch", "update"), ("coordination.k8s.io",), ("leases", "leasecandidates")),
        ((*_READ, "delete"), ("",), ("pods",)),
        (("create",), ("",), ("bindings", "pods/binding")),
        (("patch", "update"), ("",), ("pods/status",)),
        (_READ, ("",), ("nodes", "namespaces", "services", "replicationcontrollers", "persistentvolumes")),
        ((*_READ, "patch", "update"), ("",), ("persistentvolumeclaims",)),
        (_READ, ("apps",), ("replicasets", "statefulsets")),
        (_READ, ("policy",), ("poddisruptionbudgets",)),
        (_READ, ("storage.k8s.io",), ("csidrivers", "csinodes", "csistoragecapacities", "storageclasses")),
        (_READ, ("storage.k8s.io",), ("volumeattachments",)),
        (_READ, ("resource.k8s.io",), ("deviceclasses", "resourceslices", "devicetaintrules")),
        ((*_READ, "create", "delete", "patch", "update"), ("resource.k8s.io",), claims),
        (("patch", "update"), ("resource.k8s.io",), ("resourceclaims/binding",)),
        (_READ, ("scheduling.k8s.io",), ("podgroups", "priorityclasses", "workloads")),
        (("patch", "update"), ("scheduling.k8s.io",), ("podgroups/status",)),
        (("create",), ("authentication.k8s.io",), ("tokenreviews",)),
        (("create",), ("authorization.k8s.io",), ("subjectaccessreviews",)),
    )
    return [
        _role("system:kube-scheduler", rules),
        _binding("system:kube-scheduler", _user("system:kube-scheduler")),
        # What backfill asks of Jobs: their deadlines.
        _role("haru:backfill", _rules((_READ, ("batch",), ("jobs",)))),
        _binding("haru:backfill", _user("system:kube-scheduler")),
    ]


def _onlookers() -> list[Obj]:
    """What the web page reads. It writes nothing."""
    rules = _rules(
        (_READ, ("",), ("nodes", "namespaces", "pods", "events", "persistentvolumes", "persistentvolumeclaims")),
        (_READ, ("",), ("resourcequotas",)),
        (_READ, ("apps",), ("replicasets", "statefulsets")),
        (_READ, ("batch",), ("jobs",)),
        (_READ, ("policy",), ("poddisruptionbudgets",)),
        (_READ, ("storage.k8s.io",), ("storageclasses",)),
        (_READ, ("resource.k8s.io",), ("deviceclasses", "resourceslices", "devicetaintrules")),
        (_READ, ("resource.k8s.io",), ("resourceclaims", "resourceclaimtemplates")),
        (_READ, ("scheduling.k8s.io",), ("podgroups", "workloads")),
    )
    return [made for name in ("dashboard", "accounting") for made in _own(name, rules)]


def _own(name: str, rules: list[Obj]) -> list[Obj]:
    """A role of Haru's, and who has it."""
    return [_role(f"haru:{name}", rules), _binding(f"haru:{name}", _user(f"system:haru-{name}"))]


def _simulated() -> list[Obj]:
    """What stands behind simulated nodes: one who watches for all of them, and the driver of their devices.

    What is written of a node and its pods is written as `system:node:NAME`.
    """
    watched = _rules(
        _EVENTS,
        (("list", "watch"), ("",), ("nodes", "pods")),
        (("list", "watch"), ("resource.k8s.io",), ("resourceclaims",)),
    )
    published = _rules(
        _EVENTS,
        (("list", "watch"), ("",), ("nodes",)),
        ((*_READ, "create", "delete", "update"), ("resource.k8s.io",), ("resourceslices",)),
        (("create", "list"), ("resource.k8s.io",), ("deviceclasses",)),
    )
    return [*_own("fleet", watched), *_own("driver", published)]


def _node() -> list[Obj]:
    drivers = ("associated-node:update", "associated-node:patch")
    rules = _rules(
        _EVENTS,
        (("create", *_READ, "patch", "update"), ("",), ("nodes",)),
        (("patch", "update"), ("",), ("nodes/status",)),
        (("create", "delete", *_READ), ("",), ("pods",)),
        (("patch", "update"), ("",), ("pods/status",)),
        (("create",), ("",), ("pods/eviction", "serviceaccounts/token")),
        (_READ, ("",), ("configmaps", "secrets", "services", "persistentvolumes", "persistentvolumeclaims")),
        (("create", "delete", *_READ, "patch", "update"), ("coordination.k8s.io",), ("leases",)),
        (_READ, ("node.k8s.io",), ("runtimeclasses",)),
        (_READ, ("resource.k8s.io",), ("resourceclaims",)),
        ((*_READ, *_WRITE), ("resource.k8s.io",), ("resourceslices",)),
        (drivers, ("resource.k8s.io",), ("resourceclaims/driver",)),
        (("create",), ("authentication.k8s.io",), ("tokenreviews",)),
        (("create",), ("authorization.k8s.io",), ("subjectaccessreviews", "localsubjectaccessreviews")),
    )
    own_api = (
        "nodes/configz",
        "nodes/healthz",
        "nodes/log",
        "nodes/metrics",
        "nodes/pods",
        "nodes/proxy",
        "nodes/stats",
    )
    admin = _rules((_READ, ("",), ("nodes",)), (("proxy",), ("",), ("nodes",)), (("*",), ("",), own_api))
    kubelet_admin = "system:kubelet-api-admin"
    return [
        # For those who bind it themselves: the node authorizer knows what nodes may, and needs no binding.
        *(_role("system:node", rules), _binding("system:node")),
        *(_role(kubelet_admin, admin), _binding(kubelet_admin, _user(KUBELET_CLIENT))),
    ]


_PODS: RuleText = (("create", "delete", "get", "list", "patch", "watch"), ("",), ("pods",))
_ENDED_PODS: RuleText = (("delete", "get", "list", "watch"), ("",), ("pods",))
_POD_STATUS: RuleText = (("patch", "update"), ("",), ("pods/status",))
_REVISIONS: RuleText = ((*_READ, "create", "delete", "patch", "update"), ("apps",), ("controllerrevisions",))

_CONTROLLERS: dict[str, tuple[RuleText, ...]] = {
    "cronjob-controller": (
        ((*_READ, "update"), ("batch",), ("cronjobs",)),
        (("update",), ("batch",), ("cronjobs/finalizers", "cronjobs/status")),
        ((*_READ, "create", "delete", "patch", "update"), ("batch",), ("jobs",)),
        (("delete", "list", "watch"), ("",), ("pods",)),
    ),
    "daemon-set-controller": (
        _PODS,
        (("list", "watch"), ("",), ("nodes",)),
        (_READ, ("apps",), ("daemonsets",)),
        (("update",), ("apps",), ("daemonsets/finalizers", "daemonsets/status")),
        _REVISIONS,
    ),
    "deployment-controller": (
        ((*_READ, "update"), ("",), ("pods",)),
        ((*_READ, "patch", "update"), ("apps",), ("deployments",)),
        (("update",), ("apps",), ("deployments/finalizers", "deployments/status")),
        ((*_READ, "create", "delete", "patch", "update"), ("apps",), ("replicasets",)),
    ),
    "device-taint-eviction-controller": (
        _ENDED_PODS,
        _POD_STATUS,
        (_READ, ("resource.k8s.io",), ("deviceclasses", "devicetaintrules", "resourceclaims", "resourceslices")),
        (("patch", "update"), ("resource.k8s.io",), ("devicetaintrules/status",)),
    ),
    "disruption-controller": (
        (_READ, ("",), ("replicationcontrollers",)),
        _POD_STATUS,
        (_READ, ("apps",), ("deployments", "replicasets", "statefulsets")),
        (_READ, ("policy",), ("poddisruptionbudgets",)),
        (("update",), ("policy",), ("poddisruptionbudgets/status",)),
        (("get",), ("*",), ("*/scale",)),
    ),
    "endpoint-controller": (
        (_READ, ("",), ("pods", "services")),
        ((*_READ, "create", "delete", "update"), ("",), ("endpoints",)),
        (("create",), ("",), ("endpoints/restricted",)),
    ),
    "endpointslice-controller": (
        (_READ, ("",), ("nodes", "pods", "services")),
        (("update",), ("",), ("services/finalizers",)),
        ((*_READ, "create", "delete", "update"), ("discovery.k8s.io",), ("endpointslices",)),
        (("create",), ("discovery.k8s.io",), ("endpointslices/restricted",)),
    ),
    "endpointslicemirroring-controller": (
        (_READ, ("",), ("endpoints", "services")),
        (("update",), ("",), ("endpoints/finalizers", "services/finalizers")),
        ((*_READ, "create", "delete", "update"), ("discovery.k8s.io",), ("endpointslices",)),
        (("create",), ("discovery.k8s.io",), ("endpointslices/restricted",)),
    ),
    "generic-garbage-collector": (((*_READ, "delete", "patch", "update"), ("*",), ("*",)),),
    "job-controller": (
        _PODS,
        ((*_READ, "patch", "update"), ("batch",), ("jobs",)),
        (("update",), ("batch",), ("jobs/finalizers", "jobs/status")),
        ((*_READ, "create"), ("scheduling.k8s.io",), ("podgroups", "workloads")),
    ),
    "namespace-controller": (
        ((*_READ, "delete"), ("",), ("namespaces",)),
        (("update",), ("",), ("namespaces/finalize", "namespaces/status")),
        ((*_READ, "delete", "deletecollection"), ("*",), ("*",)),
    ),
    "node-controller": (
        ((*_READ, "delete", "patch", "update"), ("",), ("nodes",)),
        (("patch", "update"), ("",), ("nodes/status",)),
        _ENDED_PODS,
        _POD_STATUS,
    ),
    "pod-garbage-collector": (_ENDED_PODS, (_READ, ("",), ("nodes",)), (("patch",), ("",), ("pods/status",))),
    "podgroup-protection-controller": (
        (_READ, ("",), ("pods",)),
        ((*_READ, "patch", "update"), ("scheduling.k8s.io",), ("podgroups",)),
    ),
    "replicaset-controller": (
        _PODS,
        ((*_READ, "update"), ("apps",), ("replicasets",)),
        (("update",), ("apps",), ("replicasets/finalizers", "replicasets/status")),
    ),
    "replication-controller": (
        _PODS,
        ((*_READ, "update"), ("",), ("replicationcontrollers",)),
        (("update",), ("",), ("replicationcontrollers/finalizers", "replicationcontrollers/status")),
    ),
    "resource-claim-controller": (
        (_READ, ("",), ("pods",)),
        (("update",), ("",), ("pods/finalizers",)),
        _POD_STATUS,
        ((*_READ, "create", "delete", "patch", "update"), ("resource.k8s.io",), ("resourceclaims",)),
        (("patch", "update"), ("resource.k8s.io",), ("resourceclaims/binding", "resourceclaims/status")),
        (_READ, ("resource.k8s.io",), ("resourceclaimtemplates",)),
        (_READ, ("scheduling.k8s.io",), ("podgroups",)),
        (("patch", "update"), ("scheduling.k8s.io",), ("podgroups/finalizers", "podgroups/status")),
    ),
    "resourcepoolstatusrequest-controller": (
        (_READ, ("resource.k8s.io",), ("devicetaintrules", "resourceclaims", "resourceslices")),
        ((*_READ, "delete"), ("resource.k8s.io",), ("resourcepoolstatusrequests",)),
        (("patch", "update"), ("resource.k8s.io",), ("resourcepoolstatusrequests/status",)),
    ),
    "resourcequota-controller": (
        (("list", "watch"), ("*",), ("*",)),
        (("update",), ("",), ("resourcequotas/status",)),
    ),
    "root-ca-cert-publisher": ((("create", "update"), ("",), ("configmaps",)),),
    "service-account-controller": ((("create",), ("",), ("serviceaccounts",)),),
    "stale-gang-controller": (
        _ENDED_PODS,
        (("patch",), ("",), ("pods/status",)),
        (_READ, ("scheduling.k8s.io",), ("podgroups",)),
        (("patch",), ("scheduling.k8s.io",), ("podgroups/status",)),
    ),
    "statefulset-controller": (
        _PODS,
        (("update",), ("",), ("pods",)),
        (_READ, ("apps",), ("statefulsets",)),
        (("update",), ("apps",), ("statefulsets/finalizers", "statefulsets/status")),
        _REVISIONS,
        ((*_READ, "create", "delete", "patch", "update"), ("",), ("persistentvolumeclaims",)),
    ),
    "taint-eviction-controller": (_ENDED_PODS, (_READ, ("",), ("nodes",)), _POD_STATUS),
    "ttl-after-finished-controller": (((*_READ, "delete"), ("batch",), ("jobs",)),),
}
_OWN_CONTROLLERS = ("stale-gang-controller",)  # 1.36 does not have them


def _controllers() -> list[Obj]:
    found = []
    for name, texts in _CONTROLLERS.items():
        role = f"haru:{name}" if name in _OWN_CONTROLLERS else f"system:controller:{name}"
        found += [_role(role, _rules(_EVENTS, *texts)), _binding(role, _account(name))]
    # What its role of 1.36 lacks: gangs that Jobs have outgrown go.
    outgrown = _rules((("delete",), ("scheduling.k8s.io",), ("podgroups", "workloads")))
    found += [_role("haru:gang-jobs", outgrown), _binding("haru:gang-jobs", _account("job-controller"))]
    manager = _rules(
        _EVENTS,
        (("create", "get", "update"), ("coordination.k8s.io",), ("leases",)),
        (("create", "get"), ("",), ("serviceaccounts",)),
        (("create",), ("",), ("serviceaccounts/token",)),
        (("list", "watch"), ("*",), ("*",)),
        (("create",), ("authentication.k8s.io",), ("tokenreviews",)),
        (("create",), ("authorization.k8s.io",), ("subjectaccessreviews",)),
    )
    name = "system:kube-controller-manager"
    return [*found, _role(name, manager), _binding(name, _user(name))]


def _extensions() -> list[Obj]:
    """Who looks after extension API servers, and who may read by what these know the API server."""
    name = "extension-apiserver-authentication-reader"
    metadata = {"labels": _LABELS, "annotations": {AUTOUPDATE: "true"}}
    reader = {**_rule(_READ, ("",), ("configmaps",)), "resourceNames": ["extension-apiserver-authentication"]}
    role = {"apiVersion": _API, "kind": "Role", "metadata": {**metadata, "name": name, "namespace": "kube-system"}}
    binding = {
        "apiVersion": _API,
        "kind": "RoleBinding",
        "metadata": {**metadata, "name": f"system::{name}", "namespace": "kube-system"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [_user("system:kube-controller-manager"), _user("system:kube-scheduler")],
    }
    aggregator = _role("system:kube-aggregator", [_rule(_READ, ("",), ("services", "endpoints"))])
    return [aggregator, {**role, "rules": [reader]}, binding]


def role_objects() -> list[Obj]:
    """All of them."""
    people = [*_people(), *_everybody(), *_scheduler(), *_onlookers(), *_simulated(), *_node()]
    return [*people, *_controllers(), *_extensions()]
