"""Features of nodes that a pod may need, and what a node without them says of it.

Source: KEP-5328 (features that nodes declare), and the kubelet's admission by them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from haru.kube.container_restarts import RESTART_ALL_FEATURE, may_restart_all
from haru.kube.meta import Obj


def needed_features(spec: Mapping[str, Any]) -> Iterator[str]:
    """The features that a node must declare to run the pod, in the order of their names."""
    if may_restart_all(spec):
        yield RESTART_ALL_FEATURE
    if spec.get("hostNetwork") and spec.get("hostUsers") is False:
        yield "UserNamespacesHostNetworkSupport"


def features_problem(pod: Obj, declared: Collection[str]) -> tuple[str, str] | None:
    """(reason, message) for a pod that needs what the node does not declare."""
    missing = [name for name in needed_features(pod.get("spec") or {}) if name not in declared]
    if not missing:
        return None
    return "PodFeatureUnsupported", f"Pod requires node features that are not available: {', '.join(missing)}"
