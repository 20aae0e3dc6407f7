"""The schema of what waits, as OpenAPI: `kubectl explain explanations`.

Source: OpenAPI v3 as kube-apiserver serves it, its index and its extensions of operations and schemas.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import orjson

from haru.explain_server.discovery import GROUP, KIND, LIST, ROOT, VERSION, VISIBLE_LIST
from haru.kube.meta import Obj

_INDEX = "/openapi/v3"
_GVK = "x-kubernetes-group-version-kind"
_OPEN = {"x-kubernetes-preserve-unknown-fields": True}


def openapi_document(path: str) -> Obj | None:
    """The OpenAPI document or index at a path; None where there is none."""
    return _DOCUMENTS.get(path.rstrip("/"))


def _field(kind: str, about: str, **more: object) -> Obj:
    return {"type": kind, "description": about, **more}


def _texts(about: str) -> Obj:
    return _field("array", about, items={"type": "string"})


def _objects(about: str) -> Obj:
    return _field("array", about, items={"type": "object", **_OPEN})


def _object(about: str, required: tuple[str, ...] = (), /, **properties: Obj) -> Obj:
    return _field("object", about, properties=properties, **({"required": list(required)} if required else {}))


_TYPE = {
    "apiVersion": _field("string", "The version of this object."),
    "kind": _field("string", "The kind of this object."),
}
_WHY = _object(
    "Why the first of the units waits, and what would help.",
    **_TYPE,
    subject=_object(
        "What is explained.", **{each: _field("string", f"Its {each}.") for each in ("kind", "namespace", "name")}
    ),
    verdict=_field("string", "What becomes of it.", enum=["Runs", "Starting", "FitsLater", "FitsIf", "NeverFits"]),
    summary=_field("string", "The answer in one sentence, whose words may change."),
    ageSeconds=_field("integer", "Its age."),
    node=_field("string", "Its node."),
    since=_field("string", "Since when it is there.", format="date-time"),
    startsAfter=_field("object", "The running pods that have to end first.", **_OPEN),
    reasons=_objects("Typed reasons: type, message and data."),
    pods=_objects("What the pods request of nodes."),
    requests=_objects("What is requested of devices, and at which stage devices drop out."),
    nodes=_objects("Groups of nodes with the same result."),
    scores=_objects("Of a pod that has a node: the best nodes and their points."),
    scoredNodes=_field("integer", "How many nodes are feasible for it."),
    remedies=_objects("What would help, by cost; each was tried."),
    holds=_objects("Allocated claims."),
    notRead=_texts("Kinds that could not be read."),
)
_ROW = _object(
    "Work of one workload that waits for one reason.",
    ("namespace", "workload", "pods", "explanation"),
    **_TYPE,
    metadata=_object(
        "Name and namespace.",
        name=_field("string", "KIND.NAME of the workload."),
        namespace=_field("string", "The namespace."),
    ),
    namespace=_field("string", "The namespace of the workload."),
    workload=_field("string", "KIND/NAME of the workload."),
    moreWorkloads=_field("integer", "How many other workloads are equal to it and counted here."),
    pods=_field("integer", "How many pods wait."),
    units=_field("integer", "How many gangs, or pods that are placed each for itself, they are."),
    examples=_texts("Names of the first of the pods."),
    since=_field("string", "When the first of the pods was made.", format="date-time"),
    shortBy=_object(
        "What is missing, of each unit.",
        text=_field("string", "In words."),
        numbers=_field("string", "The numbers that add up to it."),
    ),
    remediesSearched=_field(
        "boolean", "False where there are no remedies because those of others were searched first."
    ),
    starts=_field("integer", "How many of the pods start once the first remedy is carried out."),
    unblocks=_field("integer", "The same for all rows with that remedy."),
    explanation=_WHY,
) | {_GVK: [{"group": GROUP, "version": VERSION, "kind": KIND}]}
_SCHEMAS = {
    KIND: _ROW,
    f"{KIND}List": _object(
        "What waits, those first whose first remedy lets most of it start.",
        ("items",),
        **_TYPE,
        metadata=_field("object", "Metadata of the list.", **_OPEN),
        pods=_field("integer", "How many pods wait."),
        at=_field("string", "The time of the answer.", format="date-time"),
        inTrouble=_texts("Pods that have their places and do not run, by path."),
        items=_field("array", "The rows.", items={"$ref": f"#/components/schemas/{KIND}"}),
    )
    | {_GVK: [{"group": GROUP, "version": VERSION, "kind": f"{KIND}List"}]},
}


def _read(action: str, kind: str, *parameters: str) -> Obj:
    schema = {"$ref": f"#/components/schemas/{kind}"}
    path: Obj = {
        "get": {
            "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": schema}}}},
            "x-kubernetes-action": action,
            _GVK: {"group": GROUP, "version": VERSION, "kind": KIND},
        }
    }
    given = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in parameters]
    return {**path, "parameters": given} if given else path


_NAMESPACED = f"{ROOT}/namespaces/{{namespace}}/{LIST}"
_DOCUMENT: Obj = {
    "openapi": "3.0.0",
    "info": {"title": GROUP, "version": VERSION},
    "paths": {
        f"{ROOT}/{LIST}": _read("list", f"{KIND}List"),
        _NAMESPACED: _read("list", f"{KIND}List", "namespace"),
        f"{_NAMESPACED}/{{name}}": _read("get", KIND, "namespace", "name"),
        f"{ROOT}/{VISIBLE_LIST}": _read("list", f"{KIND}List"),
    },
    "components": {"schemas": _SCHEMAS},
}
_HASH = hashlib.sha256(orjson.dumps(_DOCUMENT)).hexdigest()[:32].upper()
_DOCUMENTS: Mapping[str, Obj] = {
    "/openapi/v2": {"swagger": "2.0", "info": {"title": GROUP, "version": VERSION}, "paths": {}},
    _INDEX: {"paths": {ROOT.removeprefix("/"): {"serverRelativeURL": f"{_INDEX}{ROOT}?hash={_HASH}"}}},
    f"{_INDEX}{ROOT}": _DOCUMENT,
}
