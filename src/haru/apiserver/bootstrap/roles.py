"""The roles and bindings that a cluster is born with.

Those of kube-apiserver 1.36 are in `kubernetes_roles.txt`. `roles.txt` has what Haru's components need; what is beyond
1.36 becomes a role `haru:NAME`. Source: RBAC bootstrap policy and the tables of KEP 4381, 4671, 5547.
"""

from __future__ import annotations

from collections.abc import Callable

from haru.apiserver.bootstrap.policy import merged, metadata, read_roles
from haru.kube.meta import Obj

KUBELET_CLIENT = "kube-apiserver-kubelet-client"
"""Whom the API server is to kubelets."""
_LABEL = "rbac.authorization.k8s.io/aggregate-to-"
_AGGREGATED = {"admin": "", "edit": "admin", "view": "edit"}
"""The roles of people that others are aggregated to, and which of them each belongs to."""


def role_objects(enabled: Callable[[str], bool] = lambda gate: True) -> list[Obj]:
    """All of them, with these feature gates: those of 1.36, and what Haru's components need beyond."""
    policy = [*read_roles("kubernetes_roles.txt", enabled), *(_aggregate(*pair) for pair in _AGGREGATED.items())]
    return merged(policy, read_roles("roles.txt"))


def _aggregate(name: str, onto: str) -> Obj:
    described = metadata(name)
    if onto:
        described["labels"][f"{_LABEL}{onto}"] = "true"
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": described,
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {f"{_LABEL}{name}": "true"}}]},
    }
