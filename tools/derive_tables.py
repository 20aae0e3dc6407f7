"""Derive src/haru/kube/tables/ from the interface facts of Kubernetes 1.36.

    HARU_REFERENCE_DATA=DIR python tools/derive_tables.py

reads DIR/data/kubernetes-1.36/{schema,wire,paths}.json (names, types and numbers of the API) and three lists kept here:
extension_wire.txt (numbers of apiextensions), field_facts.txt (what the schemas do not say: which fields are Go
pointers, which are written without a value, declared enums and defaults) and the short names and categories below. It
writes one table per API group and version:

    @PodSpec
    1 volumes []Volume keys=name merge=name ps=merge,retainKeys
    25 priority int32 *
    @Volume
    1 name string !
    2 + VolumeSource

A line is: protobuf number (`-`: not on the wire), JSON name, type (`[]T` list, `{}T` map, `pkg/T` another package),
flags. `!` required, `*` a pointer in Go (zero differs from absent), `+` the message's fields belong to this one.
A required field is written in JSON without a value too, unless it has `~`; others are if they have `0`.
The loader is haru.kube.schema; kinds.txt is read by haru.kube.kinds.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "src" / "haru" / "kube" / "tables"
API = "io.k8s.api."
META = "io.k8s.apimachinery.pkg.apis.meta."
EXTENSIONS = "io.k8s.apiextensions-apiserver.pkg.apis."
AGGREGATOR = "io.k8s.kube-aggregator.pkg.apis."
# Where a group's types are, if not where most are.
PACKAGES = {"apiextensions.k8s.io": EXTENSIONS, "apiregistration.k8s.io": AGGREGATOR}
# Protobuf numbers that the reference data lacks: those of kube-aggregator's API.
_META_V1 = "k8s.io.apimachinery.pkg.apis.meta.v1"
AGGREGATOR_WIRE = {
    "APIService": f"1 metadata {_META_V1}.ObjectMeta, 2 spec APIServiceSpec, 3 status APIServiceStatus",
    "APIServiceCondition": (
        f"1 type string, 2 status string, 3 lastTransitionTime {_META_V1}.Time, 4 reason string, 5 message string"
    ),
    "APIServiceSpec": (
        "1 service ServiceReference, 2 group string, 3 version string, 4 insecureSkipTLSVerify bool, 5 caBundle bytes, "
        "7 groupPriorityMinimum int32, 8 versionPriority int32"
    ),
    "APIServiceStatus": "1 conditions []APIServiceCondition",
    "ServiceReference": "1 namespace string, 2 name string, 3 port int32",
}

LEAVES = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "intOrString",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": "time",
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime": "microTime",
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": "fieldsV1",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "json",
    # Any JSON, or JSON of two forms: judged by the rules for structural schemas.
    f"{EXTENSIONS}apiextensions.v1.JSON": "json",
    f"{EXTENSIONS}apiextensions.v1.JSONSchemaPropsOrArray": "json",
    f"{EXTENSIONS}apiextensions.v1.JSONSchemaPropsOrBool": "json",
    f"{EXTENSIONS}apiextensions.v1.JSONSchemaPropsOrStringArray": "json",
}
SCALARS = {
    ("string", None): "string",
    ("boolean", None): "bool",
    ("integer", "int32"): "int32",
    ("integer", "int64"): "int64",
    ("number", "double"): "double",
    ("string", "byte"): "bytes",
}
# Types that are sent to the API without being the kind of a resource.
PAYLOADS = {
    "policy.v1": ["Eviction"],
    "autoscaling.v1": ["Scale"],
    "authentication.v1": ["TokenRequest"],
    "meta.v1": [
        *("DeleteOptions", "Status", "ListMeta", "LabelSelector", "Condition"),
        *("APIGroup", "APIGroupList", "APIResourceList", "APIVersions"),
    ],
}
# Groups in order of preference, as the aggregated discovery of 1.36 lists them.
GROUPS = [
    "", "apiregistration.k8s.io",
    "apps", "events.k8s.io", "authentication.k8s.io", "authorization.k8s.io", "autoscaling", "batch",
    "certificates.k8s.io", "networking.k8s.io", "policy", "rbac.authorization.k8s.io", "storage.k8s.io",
    "admissionregistration.k8s.io", "apiextensions.k8s.io",
    "scheduling.k8s.io", "coordination.k8s.io", "node.k8s.io", "discovery.k8s.io",
    "resource.k8s.io", "flowcontrol.apiserver.k8s.io",
]  # fmt: skip
NOT_SERVED = {"componentstatuses"}
STORAGE = {"devicetaintrules": "v1beta2", "horizontalpodautoscalers": "v2"}
SHORT = {
    "configmaps": "cm", "endpoints": "ep", "events": "ev", "limitranges": "limits", "namespaces": "ns", "nodes": "no",
    "persistentvolumeclaims": "pvc", "persistentvolumes": "pv", "pods": "po", "replicationcontrollers": "rc",
    "resourcequotas": "quota", "serviceaccounts": "sa", "services": "svc", "daemonsets": "ds", "deployments": "deploy",
    "replicasets": "rs", "statefulsets": "sts", "horizontalpodautoscalers": "hpa", "cronjobs": "cj",
    "certificatesigningrequests": "csr", "ingresses": "ing", "networkpolicies": "netpol", "ipaddresses": "ip",
    "customresourcedefinitions": "crd,crds",
    "poddisruptionbudgets": "pdb", "priorityclasses": "pc", "storageclasses": "sc", "volumeattributesclasses": "vac",
}  # fmt: skip
IN_ALL = {
    "pods", "replicationcontrollers", "services", "daemonsets", "deployments", "replicasets", "statefulsets",
    "horizontalpodautoscalers", "cronjobs", "jobs",
}  # fmt: skip
EXTENDING = {"admissionregistration.k8s.io", *PACKAGES}
FACTS = {"pointer": "*", "written": "0", "omitted": "~"}
VERBS = {"post": "create", "put": "update"}
STORED_VERBS = {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}


def stem_of(type_name: str) -> str:
    """`io.k8s.api.core.v1.Pod` -> `core.v1`."""
    package = type_name.rsplit(".", 1)[0]
    for prefix in (API, *PACKAGES.values()):
        if package.startswith(prefix):
            return package.removeprefix(prefix)
    return "meta." + package.removeprefix(META)


def type_name_of(group: str, version: str, kind: str) -> str:
    """The schema name of a kind: groups lose their domain there."""
    return f"{PACKAGES.get(group, API)}{group.split('.')[0] or 'core'}.{version}.{kind}"


def schema_name(wire_name: str) -> str:
    """`k8s.io.api.core.v1.Pod` -> `io.k8s.api.core.v1.Pod`."""
    return wire_name.replace("k8s.io.", "io.k8s.", 1)


def aggregator_wire() -> dict[str, Any]:
    """Message -> number -> (JSON name, type, container) of kube-aggregator's API."""
    found: dict[str, Any] = {}
    for name, text in AGGREGATOR_WIRE.items():
        fields = (field.split() for field in text.split(","))
        found[f"{AGGREGATOR}apiregistration.v1.{name}"] = {
            number: (json_name, kind.removeprefix("[]"), "list" if kind.startswith("[]") else "one")
            for number, json_name, kind in fields
        }
    return found


def extensions_wire() -> dict[str, Any]:
    """The same of apiextensions' API, from the list beside this script."""
    found: dict[str, Any] = {}
    for line in (Path(__file__).parent / "extension_wire.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        message, number, json_name, kind = line.split()
        container = {"[]": "list", "{}": "map"}.get(kind[:2], "one")
        kind = kind.removeprefix("[]").removeprefix("{}").replace("meta.", f"{_META_V1}.")
        found.setdefault(f"{EXTENSIONS}apiextensions.v1.{message}", {})[number] = (json_name, kind, container)
    return found


class Source:
    """The reference data, plus the facts kept beside this script."""

    def __init__(self, data: Path) -> None:
        self.schema: dict[str, Any] = json.loads((data / "schema.json").read_text())
        wire: dict[str, Any] = json.loads((data / "wire.json").read_text())
        self.wire = {schema_name(name): fields for name, fields in wire.items()} | aggregator_wire() | extensions_wire()
        self.paths: dict[str, Any] = json.loads((data / "paths.json").read_text())
        self.facts: dict[tuple[str, str], list[str]] = {}
        for line in (Path(__file__).parent / "field_facts.txt").read_text().splitlines():
            if line and not line.startswith("#"):
                stem, path, *flags = line.split()
                self.facts[stem, path] = flags

    def wire_type(self, owner: str, name: str) -> str:
        """The full schema name of a message that `owner`'s wire table names."""
        return schema_name(name) if name.startswith("k8s.io.") else f"{owner.rsplit('.', 1)[0]}.{name}"

    def fields(self, name: str) -> Iterator[tuple[str, str, dict[str, Any] | None, str]]:
        """(number, JSON name, schema or None, embedded message) of one message, wire order first."""
        properties: dict[str, Any] = dict(self.schema.get(name, {}).get("properties", {}))
        folded = {p.lower(): p for p in properties}
        for number, (json_name, wire_type, _) in sorted(self.wire.get(name, {}).items(), key=lambda f: int(f[0])):
            known = folded.get(json_name.lower())
            if known is not None:
                yield number, known, properties.pop(known), ""
            elif self.embeds(name, wire_type):
                embedded = self.wire_type(name, wire_type)
                for inner in self.names(embedded):
                    properties.pop(inner, None)
                yield number, "+", None, embedded
            else:
                yield number, json_name, self.borrowed(name, json_name, wire_type), ""
        for json_name, schema in sorted(properties.items()):
            yield "-", json_name, schema, ""

    def names(self, name: str) -> Iterator[str]:
        """The JSON names that a message brings to the one it is embedded in."""
        for _, json_name, _, embedded in self.fields(name):
            if embedded:
                yield from self.names(embedded)
            else:
                yield json_name

    def embeds(self, owner: str, wire_type: str) -> bool:
        """A message field without a JSON property of its own is embedded, if the owner has a schema."""
        return owner in self.schema and self.wire_type(owner, wire_type) in self.wire

    def owners(self, name: str) -> Iterator[dict[str, Any]]:
        """The schemas of the package's messages that refer to, or embed, this one."""
        package = name.rsplit(".", 1)[0]
        for owner, fields in self.wire.items():
            if owner.startswith(package) and any(self.wire_type(owner, f[1]) == name for f in fields.values()):
                yield self.schema.get(owner, {})

    def required(self, name: str) -> set[str]:
        """The required fields; an embedded message without a schema has those of the message that embeds it."""
        if name in self.schema:
            return set(self.schema[name].get("required", ()))
        return {field for owner in self.owners(name) for field in owner.get("required", ())}

    def borrowed(self, name: str, json_name: str, wire_type: str) -> dict[str, Any]:
        """The schema of a field that the schema data omits: of an embedded message, or a name lost as a type's."""
        for owner in self.owners(name):
            if json_name in owner.get("properties", {}):
                return dict(owner["properties"][json_name])
        scalar = {"string": "string", "bool": "boolean"}.get(wire_type)
        if scalar is None:
            raise SystemExit(f"no schema for {name}.{json_name} ({wire_type})")
        return {"type": scalar}


class Tables:
    """Writes the messages that are reachable from what is served."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.blocks: dict[str, dict[str, str]] = {}

    def add(self, name: str) -> None:
        stem, short = stem_of(name), name.rsplit(".", 1)[1]
        blocks = self.blocks.setdefault(stem, {})
        if short in blocks:
            return
        schema = self.source.schema.get(name, {})
        head = f"@{short}" + (f" map={schema['x-kubernetes-map-type']}" if "x-kubernetes-map-type" in schema else "")
        lines = [head]
        blocks[short] = ""
        required = self.source.required(name)
        for number, json_name, field, embedded in self.source.fields(name):
            if embedded:
                self.add(embedded)
                lines.append(f"{number} + {self.reference(stem, embedded)}")
                continue
            assert field is not None
            flags = ["!"] if json_name in required else []
            flags += self.flags(field) + self.facts(stem, short, json_name)
            # A message around texts, which are a list in JSON.
            is_wrapped = self.source.wire.get(name, {}).get(number, ("", "", ""))[1] == "Verbs"
            kind = "stringList" if is_wrapped else self.type(stem, field)
            lines.append(" ".join([number, json_name, kind, *flags]))
        blocks[short] = "\n".join(lines) + "\n"

    def reference(self, stem: str, name: str) -> str:
        other = stem_of(name)
        short = name.rsplit(".", 1)[1]
        return short if other == stem else f"{other}/{short}"

    def type(self, stem: str, field: dict[str, Any]) -> str:
        if "$ref" in field:
            name = field["$ref"].removeprefix("#/definitions/")
            if name in LEAVES:
                return LEAVES[name]
            self.add(name)
            return self.reference(stem, name)
        if field["type"] == "array":
            return "[]" + self.type(stem, field["items"])
        if field["type"] == "object":
            values = field["additionalProperties"]
            return "{}" + ("stringList" if values.get("type") == "array" else self.type(stem, values))
        return SCALARS[field["type"], field.get("format")]

    def flags(self, field: dict[str, Any]) -> list[str]:
        flags = []
        if "x-kubernetes-list-map-keys" in field:
            flags.append("keys=" + ",".join(field["x-kubernetes-list-map-keys"]))
        elif "x-kubernetes-list-type" in field:
            flags.append(field["x-kubernetes-list-type"])
        if "x-kubernetes-map-type" in field:
            flags.append("map=" + field["x-kubernetes-map-type"])
        if "x-kubernetes-patch-merge-key" in field:
            flags.append("merge=" + field["x-kubernetes-patch-merge-key"])
        if "x-kubernetes-patch-strategy" in field:
            flags.append("ps=" + field["x-kubernetes-patch-strategy"])
        return flags

    def facts(self, stem: str, short: str, json_name: str) -> list[str]:
        flags = self.source.facts.get((stem, f"{short}.{json_name}"), [])
        return [FACTS.get(flag, flag) for flag in flags]

    def write(self) -> None:
        OUT.mkdir(parents=True, exist_ok=True)
        for stem, blocks in self.blocks.items():
            (OUT / f"{stem}.txt").write_text("".join(blocks[name] for name in sorted(blocks)))


def resources(source: Source) -> dict[tuple[str, str, str], dict[str, Any]]:
    """(group, version, plural) -> kind, scope, verbs and subresources, out of the URL templates."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for path, entry in source.paths.items():
        segments = path.strip("/").split("/")
        group, rest = ("", segments[1:]) if segments[0] == "api" else (segments[1], segments[2:])
        version, rest = rest[0], rest[1:]
        namespaced = rest[:2] == ["namespaces", "{namespace}"]
        rest = rest[2:] if namespaced else rest
        if group not in GROUPS or rest[0] in NOT_SERVED:
            continue
        item = found.setdefault((group, version, rest[0]), {"namespaced": False, "verbs": set(), "subs": set()})
        if len(rest) > 2:
            item["subs"].add(rest[2])
            continue
        item["kind"] = entry["gvk"][2]
        item["namespaced"] |= namespaced
        item["verbs"] |= {VERBS.get(action, action) for action in entry["actions"]}
    return found


def stability(version: str) -> tuple[int, int, int]:
    """Sorts v2 before v1 before v1beta2 before v1alpha3."""
    for rank, word in enumerate(("alpha", "beta")):
        if word in version:
            major, minor = version[1:].split(word)
            return (rank, int(major), int(minor))
    return (2, int(version[1:]), 0)


def kinds_table(found: dict[tuple[str, str, str], dict[str, Any]]) -> str:
    """kinds.txt: one line a resource, in order of preference."""
    versions: dict[tuple[str, str], list[str]] = {}
    for group, version, plural in found:
        versions.setdefault((group, plural), []).append(version)
    lines = ["# group version Kind plural scope storage verbs(*: all eight) short categories subresources"]
    rank = {group: position for position, group in enumerate(GROUPS)}
    order = sorted(found, key=lambda k: (rank[k[0]], tuple(-n for n in stability(k[1])), k[2]))
    for group, version, plural in order:
        item = found[group, version, plural]
        verbs = item["verbs"] | ({"watch"} if "list" in item["verbs"] else set())
        storage = STORAGE.get(plural) or max(versions[group, plural], key=stability)
        category = "all" if plural in IN_ALL else "api-extensions" if group in EXTENDING else "-"
        columns = [
            group or "core",
            version,
            item["kind"],
            plural,
            "namespaced" if item["namespaced"] else "cluster",
            storage if "get" in verbs else "virtual",
            "*" if verbs == STORED_VERBS else ",".join(sorted(verbs)),
            SHORT.get(plural, "-"),
            category,
            ",".join(sorted(item["subs"])) or "-",
        ]
        lines.append(" ".join(columns))
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write every table; print what was written."""
    reference = os.environ.get("HARU_REFERENCE_DATA")
    if not reference:
        sys.exit("HARU_REFERENCE_DATA names no directory: set it to the reference data and run this again")
    source = Source(Path(reference) / "data" / "kubernetes-1.36")
    found = resources(source)
    tables = Tables(source)
    for (group, version, _), item in found.items():
        tables.add(type_name_of(group, version, item["kind"]))
    for stem, names in PAYLOADS.items():
        for name in names:
            tables.add((META + "v1." if stem == "meta.v1" else f"{API}{stem}.") + name)
    tables.write()
    (OUT / "kinds.txt").write_text(kinds_table(found))
    print(f"{len(found)} kinds, {sum(map(len, tables.blocks.values()))} messages in {len(tables.blocks)} tables")


if __name__ == "__main__":
    main()
