"""A random custom kind of a seed: its definition, objects of it, and what discovery and OpenAPI tell of it."""

from __future__ import annotations

import copy
import random
from typing import Any

from request_parts import PATCHES, Request, Resource
from request_schemas import SchemaDraw

Obj = dict[str, Any]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_COLUMNS = [
    {"name": "Alpha", "type": "string", "jsonPath": ".spec.alpha"},
    {"name": "Count", "type": "integer", "jsonPath": ".spec.count", "priority": 1},
    {"name": "When", "type": "date", "jsonPath": ".spec.when"},
    {"name": "Items", "type": "string", "jsonPath": ".spec.items[*]", "description": "Some text."},
    {"name": "Size", "type": "number", "jsonPath": ".spec.size", "format": "double"},
    {"name": "On", "type": "boolean", "jsonPath": ".spec.default"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
]
_STATUS = {
    "type": "object",
    "properties": {
        "phase": {"type": "string"},
        "replicas": {"type": "integer", "format": "int32"},
        "selector": {"type": "string"},
    },
}


class CustomKind:
    """The kind that a seed defines, if it defines one; `tried` counts definitions that were refused."""

    def __init__(self, seed: int, namespace: str) -> None:
        self.dice, self.changes = random.Random(f"custom {seed}"), random.Random(f"definitions {seed}")
        self.is_drawn = self.dice.random() < 0.35
        self.has_changed = False
        self.schemas: dict[tuple[str, str], Obj] = {}
        """By apiVersion and kind."""
        self._seed, self._namespace = seed, namespace
        self.group, self._kind, self._plural = f"c{seed}.example.com", f"Thing{seed}", f"thing{seed}s"

    @property
    def name(self) -> str:
        """The name of its definition."""
        return f"{self._plural}.{self.group}"

    def definition(self, tried: int) -> Obj:
        """A definition; the more of them were refused, the less is wrong with it."""
        r = self.dice
        draw = SchemaDraw(r, 0.1 if tried == 0 else 0.0)
        versions = [self._version(draw, name) for name in r.choice([["v1"], ["v1"], ["v1", "v1beta1"], ["v2", "v1"]])]
        versions[0]["storage"] = True
        if len(versions) > 1:
            versions[1]["served"] = r.random() < 0.8
            if r.random() < 0.3:
                versions[1] |= {"deprecated": True, "deprecationWarning": "old"}
        names = {"plural": self._plural, "kind": self._kind}
        for key, value in (
            ("singular", f"thing{self._seed}"), ("shortNames", [f"t{self._seed}"]), ("categories", ["all"]),
            ("listKind", f"Thing{self._seed}Collection"),
        ):  # fmt: skip
            if r.random() < 0.3:
                names[key] = value
        spec = {"group": self.group, "names": names, "versions": versions}
        spec["scope"] = "Namespaced" if r.random() < 0.9 else "Cluster"
        if r.random() < 0.1:
            spec["preserveUnknownFields"] = r.random() < 0.2
        self.schemas = {
            (f"{self.group}/{one['name']}", self._kind): one["schema"]["openAPIV3Schema"] for one in versions
        }
        metadata = {"name": self.name}
        return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata,
                "spec": spec}  # fmt: skip

    def _version(self, draw: SchemaDraw, name: str) -> Obj:
        r = self.dice
        schema: Obj = {"type": "object", "properties": {"spec": draw.object(3), "status": _STATUS}}
        if r.random() < 0.2:
            schema["properties"]["extra"] = draw.schema(1)
        if r.random() < 0.2:
            rule = r.choice(["self.metadata.name != 'a'", "has(self.spec)", "!has(self.status)", "self == oldSelf"])
            schema["x-kubernetes-validations"] = [{"rule": rule, "message": "no"}]
        if r.random() < 0.1:
            schema["properties"]["metadata"] = {"type": "object", "properties": {"name": r.choice([
                {"type": "string", "maxLength": 5}, {"type": "string", "pattern": "^a"}])}}  # fmt: skip
        made: Obj = {"name": name, "served": True, "storage": False, "schema": {"openAPIV3Schema": schema}}
        under: Obj = {"status": {}} if r.random() < 0.6 else {}
        if r.random() < 0.4:
            under["scale"] = {"specReplicasPath": ".spec.count", "statusReplicasPath": ".status.replicas"}
            if r.random() < 0.5:
                under["scale"]["labelSelectorPath"] = ".status.selector"
        if under:
            made["subresources"] = under
        if r.random() < 0.5:
            made["additionalPrinterColumns"] = r.sample(_COLUMNS, r.choice([1, 2, 4]))
        if r.random() < 0.2:
            made["selectableFields"] = [
                {"jsonPath": f".spec.{r.choice(list(schema['properties']['spec']['properties']))}"}
            ]
        return made

    def resources(self, definition: Obj) -> list[Resource]:
        """Where objects of its versions are, each with a sample."""
        spec, draw, found = definition["spec"], SchemaDraw(self.dice), []
        for version in spec["versions"] if spec["scope"] == "Namespaced" else ():
            metadata = {"name": "a", "labels": {"a": "b"}, "annotations": {"k": "v"}}
            sample = {"apiVersion": f"{self.group}/{version['name']}", "kind": self._kind, "metadata": metadata}
            schema = version["schema"]["openAPIV3Schema"]
            sample |= {"spec": draw.value(schema["properties"]["spec"], 0.0)}
            under = tuple(version.get("subresources") or ())
            if version["served"]:
                found.append(Resource(sample, self._namespace, (self._plural, under)))
        return found

    def next_definition(self, known: Obj) -> Request:
        """A later version of its definition, as an operator brings one: other versions, schemas, columns, names."""
        r, path, self.has_changed = self.changes, f"{DEFINITIONS}/{self.name}", True
        spec, headers = copy.deepcopy(known["spec"]), {"Content-Type": PATCHES["merge"]}
        versions = spec["versions"]
        if r.random() < 0.15:
            stored = r.choice([[one["name"] for one in versions], [versions[0]["name"]], [], ["v9"]])
            body: Obj = {"status": {"storedVersions": stored}}
            return Request("PATCH", f"{path}/status", "", headers, body, "customresourcedefinitions/status")
        for _ in range(r.choice([1, 1, 2])):
            self._change(spec, r.choice(versions))
        return Request("PATCH", path, "", headers, {"spec": spec}, "customresourcedefinitions")

    def _change(self, spec: Obj, version: Obj) -> None:
        r, versions, draw = self.changes, spec["versions"], SchemaDraw(self.changes)
        inner = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        declared = inner.setdefault("properties", {})
        what = r.choice(["served", "storage", "add", "drop", "names", "columns", "under", *["schema"] * 4])
        if what == "served":
            version["served"] = not version["served"]
        elif what == "storage":
            for one in versions:
                one["storage"] = one is version
        elif what == "add":
            versions.append({**copy.deepcopy(version), "name": r.choice(["v9", "v2alpha1"]), "storage": False})
        elif what == "drop" and len(versions) > 1:
            versions.remove(version)
        elif what == "names":
            key, value = r.choice([("shortNames", ["tt"]), ("categories", ["all", "x"]), ("kind", "Other")])
            spec["names"] = {**spec["names"], key: value}
        elif what == "columns":
            version["additionalPrinterColumns"] = r.sample(_COLUMNS, r.choice([0, 1, 2]))
        elif what == "under":
            version["subresources"] = r.choice([{}, {"status": {}}])
        elif what == "schema":
            name = r.choice([*declared, "fresh"])
            change = r.choice(["drop", "other", "other", "required", "rule", "open"])
            if change == "drop":
                declared.pop(name, None)
            elif change == "other":
                declared[name] = draw.schema(1)
            elif change == "required":
                inner["required"] = [name]
            elif change == "rule":
                inner["x-kubernetes-validations"] = [
                    {"rule": r.choice(["has(self.fresh)", "self == oldSelf", "size(self) < 3"])}
                ]
            else:
                inner["x-kubernetes-preserve-unknown-fields"] = True

    def knows(self, obj: Obj) -> bool:
        """Whether it is an object of this kind."""
        return (str(obj.get("apiVersion")), str(obj.get("kind"))) in self.schemas

    def changed(self, obj: Obj) -> Obj:
        """A copy in which one member has another value of its schema."""
        made = copy.deepcopy(obj)
        schema = self.schemas[str(obj["apiVersion"]), str(obj["kind"])]
        place: Any = made
        while True:
            inner = schema.get("properties") or {}
            names = [name for name in inner if name != "metadata"]
            if not names or not isinstance(place, dict):
                return made
            name = self.dice.choice(names)
            if self.dice.random() < 0.4 or not isinstance(place.get(name), dict):
                place[name] = SchemaDraw(self.dice).value(inner[name])
                return made
            place, schema = place[name], inner[name]

    def told(self, definition: Obj) -> list[Request]:
        """Requests for what discovery and OpenAPI tell of it."""
        root, found = f"/apis/{self.group}", []
        paths = [root, "/apis", *(f"{root}/{one['name']}" for one in definition["spec"]["versions"])]
        found += [Request("GET", path, "", {}, None, "discovery") for path in paths]
        found += [Request("GET", path, "", {"Accept": _AGGREGATED}, None, "discovery") for path in ("/apis", "/api")]
        for one in (each for each in definition["spec"]["versions"] if each["served"]):
            found.append(Request("GET", f"/openapi/v3{root}/{one['name']}", "", {}, None, "openapi"))
        return [*found, Request("GET", f"{DEFINITIONS}/{self.name}", "", {}, None, "customresourcedefinitions")]
