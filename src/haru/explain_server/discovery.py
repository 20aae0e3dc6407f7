"""What the group offers, as the aggregation layer and kubectl ask for it, and the paths of explanations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from haru.explain import SubjectKind
from haru.explain.object_names import LISTED, listed_kind
from haru.gangs import KINDS
from haru.kube.meta import Obj

GROUP, VERSION = "explain.haru.dev", "v1alpha1"
API_SERVICE = f"{VERSION}.{GROUP}"
ROOT = f"/apis/{GROUP}/{VERSION}"
KIND, VISIBLE_KIND, SUBRESOURCE = "Explanation", "VisibleExplanation", "explanation"
LIST, VISIBLE_LIST = "explanations", "visibleexplanations"
"""What waits in a namespace or in all of them, and what waits in those namespaces in which the user may list that."""

_GANGS = {kind.plural for kind in KINDS if kind.plural != "workloads"} | {"trainjobs"}
SUBJECTS = frozenset({f"{kind}s" for kind in get_args(SubjectKind)} | _GANGS)
PLACES = frozenset({"nodes", "devices"})
TABLES: Mapping[str, str] = {listed_kind(kind).plural: kind for kind in LISTED if kind != "Namespace"}
"""Resources whose explanation is a table of what waits with them, and their kinds."""
CLUSTER_SCOPED = PLACES | {"deviceclasses"}
RESOURCES = SUBJECTS | PLACES | TABLES.keys()
"""The resources that have an explanation, by their plural names."""


def explanation_path(namespace: str, resource: str, name: str) -> str:
    """The path of one explanation; without a namespace of what has none. A device's name has `:` for `/`."""
    where = f"/namespaces/{namespace}" if namespace else ""
    return f"{ROOT}{where}/{resource}/{name.replace('/', ':')}/{SUBRESOURCE}"


def list_path(namespace: str) -> str:
    """The path of what waits in a namespace; without one, in all that the user may see."""
    return f"{ROOT}/namespaces/{namespace}/{LIST}" if namespace else f"{ROOT}/{VISIBLE_LIST}"


def document(path: str) -> Obj | None:
    """The discovery document at a path; None where there is none."""
    return _DOCUMENTS.get(path.rstrip("/"))


def _resource(name: str, *verbs: str, namespaced: bool, kind: str = KIND) -> Obj:
    # Of resources of one kind kubectl asks the last one, by whichever name.
    singular = "" if "/" in name else kind.lower()
    return {"name": name, "singularName": singular, "namespaced": namespaced, "kind": kind, "verbs": list(verbs)}


_GROUP_VERSION = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
_API_GROUP: Obj = {"name": GROUP, "versions": [_GROUP_VERSION], "preferredVersion": _GROUP_VERSION}
_DOCUMENTS: Mapping[str, Obj] = {
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_API_GROUP]},
    f"/apis/{GROUP}": {"kind": "APIGroup", "apiVersion": "v1", **_API_GROUP},
    ROOT: {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{GROUP}/{VERSION}",
        "resources": [
            _resource(LIST, "get", "list", namespaced=True),
            _resource(VISIBLE_LIST, "list", namespaced=False, kind=VISIBLE_KIND),
            *(
                _resource(f"{plural}/{SUBRESOURCE}", "get", namespaced=plural not in CLUSTER_SCOPED)
                for plural in sorted(RESOURCES)
            ),
        ],
    },
}
