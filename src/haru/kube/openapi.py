"""OpenAPI v3: one document per group and version, built from the type tables.

kubectl reads these documents to explain fields, to find out that the server validates fields (a PATCH operation with
the parameter `fieldValidation`), and for the merge keys of a three-way apply. Schemas carry the names, the
`x-kubernetes-*` extensions and the `allOf`-wrapped references that 1.36 serves; the descriptions are our own and
exist for the types that people write by hand. Documents are plain data; whoever serves them caches them.
Source: the OpenAPI v3 of Kubernetes 1.36 (KEP 2896), as behaviour.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from haru.kube.custom.published import published
from haru.kube.kinds import CustomType, Kind, Subresource, by_kind, subresources_of
from haru.kube.meta import Obj
from haru.kube.schema import Field, MessageType, message_type

_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_REFERENCE = "#/components/schemas/"
_TABLES = Path(__file__).parent / "tables"

# Leaf types that are schemas of their own.
_LEAVES: dict[str, tuple[str, Obj]] = {
    "quantity": (
        "io.k8s.apimachinery.pkg.api.resource.Quantity",
        {
            "description": 'An exact amount: a number with a unit, such as "500m", "1.5" or "80Gi".',
            "oneOf": [{"type": "string"}, {"type": "number"}],
        },
    ),
    "intOrString": (
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        {
            "description": 'A whole number, or a text such as "25%" or the name of a port.',
            "format": "int-or-string",
            "oneOf": [{"type": "integer"}, {"type": "string"}],
        },
    ),
    "time": (
        f"{_META}.Time",
        {"description": "An instant in RFC 3339, to the second.", "format": "date-time", "type": "string"},
    ),
    "microTime": (
        f"{_META}.MicroTime",
        {"description": "An instant in RFC 3339, to the microsecond.", "format": "date-time", "type": "string"},
    ),
    "json": (
        "io.k8s.apimachinery.pkg.runtime.RawExtension",
        {"description": "Any JSON object; it is stored as it is given.", "type": "object"},
    ),
    "fieldsV1": (
        f"{_META}.FieldsV1",
        {"description": "A set of fields, as a tree of field names.", "type": "object"},
    ),
}
_SCALARS: dict[str, Obj] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "double": {"type": "number", "format": "double"},
    "bytes": {"type": "string", "format": "byte"},
    "stringList": {"type": "array", "items": {"type": "string"}},
}
_PATCH_TYPES = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)


def openapi_v3_index(group_versions: Iterable[tuple[str, str]], hash_of: Callable[[str, str], str]) -> Obj:
    """`GET /openapi/v3`: where each group version's document is; the hash makes it cacheable for ever."""
    paths = {}
    for group, version in group_versions:
        path = _root(group, version)
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={hash_of(group, version)}"}
    return {"paths": paths}


def openapi_hash(group: str, version: str, kinds: Iterable[Kind]) -> str:
    """Changes whenever the document of this group version may differ; much cheaper than the document."""
    digest = hashlib.sha256()
    for kind in kinds:
        if (kind.group, kind.version) == (group, version):
            digest.update(f"{kind} {kind.verbs} {kind.subresources}\n".encode())
            if kind.custom is not None:
                digest.update(json.dumps(kind.custom.raw, sort_keys=True).encode())
    digest.update(_tables_digest())
    return digest.hexdigest().upper()[:32]


@cache
def _tables_digest() -> bytes:
    digest = hashlib.sha256()
    for path in sorted(_TABLES.glob("*.txt")):
        digest.update(path.read_bytes())
    return digest.digest()


def openapi_v3_document(group: str, version: str, kinds: Sequence[Kind]) -> Obj:
    """`GET /openapi/v3/<path>`: the paths and schemas of one group version, for the kinds that are served."""
    served = [kind for kind in kinds if (kind.group, kind.version) == (group, version)]
    schemas = _Schemas()
    paths: Obj = {}
    for kind in served:
        schemas.add_kind(kind)
        _add_paths(paths, schemas, kind)
    components: Obj = {"schemas": dict(sorted(schemas.schemas.items()))}
    if served and all(kind.custom is not None for kind in served):
        info = {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"}
    else:
        info = {"title": "Kubernetes", "version": "v1.36.0"}
        components["securitySchemes"] = {"BearerToken": {"type": "apiKey", "name": "authorization", "in": "header"}}
    return {"openapi": "3.0.0", "info": info, "paths": dict(sorted(paths.items())), "components": components}


def _root(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


# --- schemas ---------------------------------------------------------------------------------------------------------


class _Schemas:
    """The schemas that a document needs, each added once."""

    def __init__(self) -> None:
        self.schemas: Obj = {}

    def add_kind(self, kind: Kind) -> None:
        """The kind's own schema and its list's."""
        if kind.custom is not None:
            schema = self.schemas[kind.type_name] = self._custom_schema(kind.custom)
        else:
            schema = self.schemas[self.add(message_type(kind.type_name))]
        schema["x-kubernetes-group-version-kind"] = [_gvk(kind)]
        if "list" in kind.verbs:
            self.schemas[_list_name(kind)] = self.list_schema(kind)

    def _custom_schema(self, custom: CustomType) -> Obj:
        """A custom resource as its definition has it, with what every object has besides."""
        meta = self.reference(self.add(message_type(f"{_META}.ObjectMeta")))
        every = {
            "apiVersion": {"type": "string", "description": _describe("meta", "TypeMeta", "apiVersion")},
            "kind": {"type": "string", "description": _describe("meta", "TypeMeta", "kind")},
            "metadata": {
                **meta,
                "description": "Standard object's metadata: name, labels and whatever else every object has.",
            },
        }
        raw = published(custom.raw, every)
        return {**raw, "properties": {**(raw.get("properties") or {}), **every}, **_selectable(custom)}

    def list_schema(self, kind: Kind) -> Obj:
        meta, item = message_type(f"{_META}.ListMeta"), self.reference(kind.type_name)
        if kind.custom is not None:
            item = {"$ref": _REFERENCE + kind.type_name}
        return {
            "description": f"A list of {kind.kind} objects.",
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string", "description": _describe("meta", "TypeMeta", "apiVersion")},
                "items": {"type": "array", "items": item, "description": "The objects."},
                "kind": {"type": "string", "description": _describe("meta", "TypeMeta", "kind")},
                "metadata": {**self.reference(self.add(meta)), "description": "The version of the list as a whole."},
            },
            "x-kubernetes-group-version-kind": [{**_gvk(kind), "kind": kind.list_kind}],
            **(_selectable(kind.custom) if kind.custom is not None else {}),
        }

    def add(self, message: MessageType) -> str:
        """Adds a message and what it refers to; returns its name."""
        if message.name in self.schemas:
            return message.name
        schema: Obj = {}
        self.schemas[message.name] = schema
        group, short = message.name.rsplit(".", 3)[1], message.short_name
        description = _describe(group, short, "")
        if description:
            schema["description"] = description
        schema["type"] = "object"
        required = [field.name for field in message.fields.values() if field.required]
        if required:
            schema["required"] = required
        properties = {}
        for field in message.fields.values():
            text = _describe(group, short, field.name)
            if not text and field.name in ("apiVersion", "kind", "metadata"):
                text = _describe("meta", "TypeMeta", field.name)
            properties[field.name] = self.field(field, text)
        if properties:
            schema["properties"] = dict(sorted(properties.items()))
        if message.map_type:
            schema["x-kubernetes-map-type"] = message.map_type
        return message.name

    def field(self, field: Field, description: str) -> Obj:
        schema: Obj
        if field.container == "list":
            schema = {"type": "array", "items": self.value(field, default={})}
        elif field.container == "map":
            schema = {"type": "object", "additionalProperties": self.value(field, default={})}
        else:
            schema = self.value(field, default={} if field.required else None)
            if field.default is not None:
                schema["default"] = field.default
        if description:
            schema["description"] = description
        return {**schema, **_extensions(field)}

    def value(self, field: Field, default: Any) -> Obj:
        """The schema of one value: a reference, wrapped so that a description may stand beside it, or a scalar."""
        if field.is_message:
            reference = self.reference(self.add(message_type(field.type)))
            return reference if default is None else {**reference, "default": default}
        if field.type in _LEAVES:
            name, schema = _LEAVES[field.type]
            self.schemas.setdefault(name, dict(schema))
            return self.reference(name)
        schema = dict(_SCALARS[field.type])
        if field.enum:
            schema["enum"] = list(field.enum)
        return schema

    @staticmethod
    def reference(name: str) -> Obj:
        return {"allOf": [{"$ref": _REFERENCE + name}]}


def _extensions(field: Field) -> Obj:
    extensions: Obj = {}
    if field.list_type:
        extensions["x-kubernetes-list-type"] = field.list_type
    if field.list_map_keys:
        extensions["x-kubernetes-list-map-keys"] = list(field.list_map_keys)
    if field.map_type == "atomic":
        extensions["x-kubernetes-map-type"] = "atomic"
    if field.patch_merge_key:
        extensions["x-kubernetes-patch-merge-key"] = field.patch_merge_key
    if field.patch_strategies:
        extensions["x-kubernetes-patch-strategy"] = ",".join(field.patch_strategies)
    return extensions


def _gvk(kind: Kind) -> Obj:
    return {"group": kind.group, "kind": kind.kind, "version": kind.version}


def _list_name(kind: Kind) -> str:
    return kind.type_name.removesuffix(kind.kind) + kind.list_kind


def _selectable(custom: CustomType) -> Obj:
    fields = [{"fieldPath": path} for path in custom.selectable]
    return {"x-kubernetes-selectable-fields": fields} if fields else {}


@cache
def _descriptions() -> dict[tuple[str, str, str], str]:
    """(group, type, field) -> sentence; the field is empty for the type itself."""
    found: dict[tuple[str, str, str], str] = {}
    embedded: list[tuple[str, str, str]] = []
    group = type_name = ""
    for line in (_TABLES / "descriptions.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("@"):
            head, _, text = line[1:].partition(" ")
            group, _, type_name = head.partition("/")
            found[group, type_name, ""] = text
        elif line.startswith("+"):
            embedded.append((group, type_name, line.rpartition("/")[2]))
        elif line and not line.startswith("#"):
            name, _, text = line.partition(" ")
            found[group, type_name, name] = text
    for group, type_name, inner in embedded:
        own = {name: text for (of, each, name), text in found.items() if (of, each) == (group, inner) and name}
        found = {(group, type_name, name): text for name, text in own.items()} | found
    return found


def _describe(group: str, type_name: str, field: str) -> str:
    return _descriptions().get((group, type_name, field), "")


# --- paths -----------------------------------------------------------------------------------------------------------


def _query(name: str, description: str, kind: str = "string") -> Obj:
    return {"name": name, "in": "query", "description": description, "schema": {"type": kind, "uniqueItems": True}}


def _path_parameter(name: str, description: str) -> Obj:
    return {"name": name, "in": "path", "required": True, "description": description, "schema": {"type": "string"}}


_DRY_RUN = _query("dryRun", "All: do everything but store the result.")
_MANAGER = _query("fieldManager", "The name under which the caller owns the fields that it writes.")
_VALIDATION = _query(
    "fieldValidation", "What becomes of unknown and repeated fields: Ignore drops them, Warn says so, Strict refuses."
)
_FORCE = _query("force", "Take over fields that others own; for apply only.", "boolean")
_LIST_QUERIES = [
    _query("labelSelector", "Only objects whose labels match."),
    _query("fieldSelector", "Only objects whose fields match."),
    _query("limit", "At most so many objects; the answer says how to continue.", "integer"),
    _query("continue", "Where the previous answer left off."),
    _query("resourceVersion", "The version that the answer must not be older than."),
    _query("resourceVersionMatch", "How resourceVersion is meant: Exact or NotOlderThan."),
    _query("timeoutSeconds", "When a watch ends.", "integer"),
    _query("watch", "Send every change from resourceVersion on.", "boolean"),
    _query("allowWatchBookmarks", "Send bookmarks with the current version now and then.", "boolean"),
    _query("sendInitialEvents", "Begin a watch with the objects that exist.", "boolean"),
]
_DELETE_QUERIES = [
    _DRY_RUN,
    _query("gracePeriodSeconds", "How long the object may take to end.", "integer"),
    _query("propagationPolicy", "What becomes of dependents: Orphan, Background or Foreground."),
    _query("orphanDependents", "Deprecated: use propagationPolicy.", "boolean"),
]
_QUERIES: dict[str, list[Obj]] = {
    "get": [],
    "list": _LIST_QUERIES,
    "post": [_DRY_RUN, _MANAGER, _VALIDATION],
    "put": [_DRY_RUN, _MANAGER, _VALIDATION],
    "patch": [_DRY_RUN, _MANAGER, _VALIDATION, _FORCE],
    "delete": _DELETE_QUERIES,
    "deletecollection": [*_DELETE_QUERIES, *_LIST_QUERIES],
}
# Verb of the API -> action in OpenAPI, HTTP method.
_ACTIONS = {
    "get": ("get", "get"),
    "list": ("list", "get"),
    "create": ("post", "post"),
    "update": ("put", "put"),
    "patch": ("patch", "patch"),
    "delete": ("delete", "delete"),
    "deletecollection": ("deletecollection", "delete"),
}
_WORDS = {"get": "read", "post": "create", "put": "replace", "deletecollection": "deleteCollection"}
_ANSWERS = {"post": ("200", "201", "202"), "put": ("200", "201"), "patch": ("200", "201"), "delete": ("200", "202")}
_CODES = {"200": "OK", "201": "Created", "202": "Accepted"}
_ON_COLLECTION = ("list", "create", "deletecollection")
_PRETTY = _query("pretty", "Indent the answer.")


def _add_paths(paths: Obj, schemas: _Schemas, kind: Kind) -> None:
    root = f"/{_root(kind.group, kind.version)}"
    collection = f"{root}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"
    if kind.namespaced and "list" in kind.verbs:
        paths[f"{root}/{kind.plural}"] = _item(schemas, kind, ["list"], parameters=[])
    namespace = [_path_parameter("namespace", "The namespace.")] if kind.namespaced else []
    on_collection = [verb for verb in kind.verbs if verb in _ON_COLLECTION]
    if on_collection:
        paths[collection] = _item(schemas, kind, on_collection, parameters=namespace)
    on_object = [verb for verb in kind.verbs if verb in _ACTIONS and verb not in _ON_COLLECTION]
    named = [_path_parameter("name", f"The name of the {kind.kind}."), *namespace]
    if on_object:
        paths[f"{collection}/{{name}}"] = _item(schemas, kind, on_object, parameters=named)
    for sub in subresources_of(kind):
        paths[f"{collection}/{{name}}/{sub.name}"] = _item(schemas, kind, sub.verbs, parameters=named, sub=sub)


def _item(
    schemas: _Schemas, kind: Kind, verbs: Iterable[str], *, parameters: list[Obj], sub: Subresource | None = None
) -> Obj:
    """One path: its operations and the parameters in the path itself."""
    body = kind
    if sub is not None and sub.name != "log":
        api_version = f"{sub.group}/{sub.version}" if sub.group else sub.version
        found = kind if (api_version, sub.kind) == (kind.api_version, kind.kind) else by_kind(api_version, sub.kind)
        assert found is not None, f"{kind}: no body kind for {sub.name}"
        body = found
        schemas.add_kind(body)
    item: Obj = {}
    for verb in verbs:
        action, method = _ACTIONS[verb]
        item[method] = _operation(schemas, kind, body, action, bool(parameters), sub)
    return {**item, "parameters": [*parameters, _PRETTY]}


def _operation(schemas: _Schemas, kind: Kind, body: Kind, action: str, scoped: bool, sub: Subresource | None) -> Obj:
    group = "".join(part.capitalize() for part in (kind.group.split(".", 1)[0] or "core").split("-"))
    scope = "Namespaced" if kind.namespaced and scoped else ""
    name = f"{group}{kind.version.capitalize()}{scope}{kind.kind}"
    suffix = sub.name.capitalize() if sub else "" if scoped or not kind.namespaced else "ForAllNamespaces"
    result = schemas.reference(_list_name(kind) if action == "list" else body.type_name)
    if action in ("delete", "deletecollection"):
        result = schemas.reference(schemas.add(message_type(f"{_META}.Status")))
    content = {"text/plain": {"schema": {"type": "string"}}}
    if sub is None or sub.name != "log":
        content = {media: {"schema": result} for media in ("application/json", "application/yaml")}
    operation: Obj = {
        "operationId": f"{_WORDS.get(action, action)}{name}{suffix}",
        "tags": [f"{group.lower()}_{kind.version}"],
        **({"parameters": _QUERIES[action]} if _QUERIES[action] else {}),
        "responses": {
            **{code: {"description": _CODES[code], "content": content} for code in _ANSWERS.get(action, ("200",))},
            "401": {"description": "Unauthorized"},
        },
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _gvk(body if sub else kind),
    }
    request = _request_body(schemas, body, action)
    return {**operation, "requestBody": request} if request else operation


def _request_body(schemas: _Schemas, body: Kind, action: str) -> Obj:
    if action in ("post", "put"):
        return {"required": True, "content": {"*/*": {"schema": schemas.reference(body.type_name)}}}
    if action == "patch":
        name = f"{_META}.Patch"
        schemas.schemas.setdefault(
            name, {"description": "A patch, in the form its content type names.", "type": "object"}
        )
        # Strategic merge needs merge keys, which only built-in types have.
        types = [media for media in _PATCH_TYPES if body.custom is None or "strategic" not in media]
        return {"required": True, "content": {media: {"schema": schemas.reference(name)} for media in types}}
    if action in ("delete", "deletecollection"):
        options = schemas.add(message_type(f"{_META}.DeleteOptions"))
        return {"content": {"*/*": {"schema": schemas.reference(options)}}}
    return {}
