"""What the group offers, as the aggregation layer and kubectl ask for it, and the paths of explanations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from haru.engine.state import HELD_BACK_BY, WATCHED_KINDS
from haru.explain import SubjectKind
from haru.gangs import KINDS
from haru.kube.meta import Obj

GROUP, VERSION = "explain.haru.dev", "v1alpha1"
API_SERVICE = f"{VERSION}.{GROUP}"
ROOT = f"/apis/{GROUP}/{VERSION}"
SUBRESOURCE = "explanation"
_OWN = frozenset({"podgroups", "workloads"})

RESOURCES: Mapping[str, tuple[SubjectKind, str]] = {
    **{f"{kind}s": (kind, "") for kind in get_args(SubjectKind)},
    **{kind.plural: ("podgroup", kind.prefix) for kind in KINDS if kind.plural not in _OWN},
    # A TrainJob of Kubeflow Trainer makes a JobSet of its own name.
    "trainjobs": ("podgroup", "jobset:"),
}
"""By the plural name of a resource: the kind that is explained, and what begins the names of its PodGroups."""

OBJECT_KINDS: Mapping[str, str] = {kind.lower(): kind for _, kind in (*WATCHED_KINDS, *HELD_BACK_BY)}
"""The kinds of objects by their names in lower case."""


def explanation_path(namespace: str, resource: str, name: str) -> str:
    """The path of one explanation."""
    return f"{ROOT}/namespaces/{namespace}/{resource}/{name}/{SUBRESOURCE}"


def document(path: str) -> Obj | None:
    """The discovery document or the OpenAPI index at a path; None where there is none."""
    return _DOCUMENTS.get(path.rstrip("/"))


def _resource(plural: str) -> Obj:
    return {
        "name": f"{plural}/{SUBRESOURCE}",
        "singularName": "",
        "namespaced": True,
        "kind": "Explanation",
        "verbs": ["get"],
    }


_GROUP_VERSION = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
_API_GROUP: Obj = {"name": GROUP, "versions": [_GROUP_VERSION], "preferredVersion": _GROUP_VERSION}
_DOCUMENTS: Mapping[str, Obj] = {
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_API_GROUP]},
    f"/apis/{GROUP}": {"kind": "APIGroup", "apiVersion": "v1", **_API_GROUP},
    ROOT: {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{GROUP}/{VERSION}",
        "resources": [_resource(plural) for plural in sorted(RESOURCES)],
    },
    "/openapi/v2": {"swagger": "2.0", "info": {"title": GROUP, "version": VERSION}, "paths": {}},
    "/openapi/v3": {"paths": {}},
}
