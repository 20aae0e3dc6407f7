"""A custom kind of two versions whose objects a webhook converts, well or wrongly: each object says how in its spec."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

from request_parts import PARTIAL, PATCHES, TABLE, Request, mark
from webhook_server import bundle

Obj = dict[str, Any]
PLACE = "convert"
"""Where the server of webhooks converts."""
WAYS = (
    *("", "", "", "labels", "annotations", "finalizers", "owners", "version", "kind", "name", "uid", "namespace",
    "dates"),
    *("version-of-object", "no-metadata", "no-spec", "wrong-type", "unknown", "null", "text", "generation", "deleting"),
    *("missing", "twice", "none", "failed", "failed-plainly", "no-result", "other-review", "no-json", "error",
    "no-kind"),
)  # fmt: skip
_JSON = {"Content-Type": "application/json"}
_RAW = {"no-json": (200, b"{"), "error": (500, b'{"message": "broken"}')}


def converted(review: Obj) -> tuple[int, bytes]:
    """The answer to a ConversionReview: its status, and its body."""
    asked = review["request"]
    made, way = [], ""
    for obj in asked["objects"]:
        way = str((obj.get("spec") or {}).get("way") or "") or way
        made.append(_converted(copy.deepcopy(obj), asked["desiredAPIVersion"]))
    if way in _RAW:
        return _RAW[way]
    response: Obj = {"uid": asked["uid"], "result": {"status": "Success"}, "convertedObjects": made}
    response |= {
        "missing": {"convertedObjects": made[1:]}, "twice": {"convertedObjects": [*made, *made]},
        "no-result": {"result": {}},
        "none": {"convertedObjects": None}, "failed": {"result": {"status": "Failed", "message": "cannot"}},
        "failed-plainly": {"result": {"status": "Failed"}}, "other-review": {"uid": "x"},
    }.get(way, {})  # fmt: skip
    answer = {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}
    if way == "no-kind":
        del answer["kind"]
    return 200, json.dumps(answer).encode()


def _converted(obj: Obj, version: str) -> Any:
    spec, metadata = obj.setdefault("spec", {}), obj["metadata"]
    old, new = ("a", "b") if version.endswith("v2") else ("b", "a")
    if old in spec:
        spec[new] = spec.pop(old)
    obj["apiVersion"] = version
    way = spec.get("way")
    changes: dict[str, Obj] = {
        "labels": {"labels": {"c": "d"}}, "annotations": {"annotations": {"k": "w"}},
        "finalizers": {"finalizers": ["x.y/z"]},
        "owners": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]},
        "name": {"name": "x"},
        "uid": {"uid": "x"}, "namespace": {"namespace": "x"}, "dates": {"creationTimestamp": "2026-01-02T03:04:05Z"},
        "version-of-object": {"resourceVersion": "1"}, "generation": {"generation": 9},
        "deleting": {"deletionTimestamp": "2026-01-02T03:04:05Z"},
    }  # fmt: skip
    metadata |= changes.get(str(way), {})
    if way == "version":
        obj["apiVersion"] = "x.y/v1"
    elif way == "kind":
        obj["kind"] = "Other"
    elif way in ("no-metadata", "no-spec"):
        del obj[way.removeprefix("no-")]
    elif way == "wrong-type":
        spec[new] = 5
    elif way == "unknown":
        spec["unknown"] = 1
    return None if way == "null" else "x" if way == "text" else obj


class Conversions:
    """The kind of one seed, and requests about it; dice of its own."""

    def __init__(self, seed: int, namespace: str) -> None:
        self.dice = random.Random(f"conversions {seed}")
        self.is_drawn = self.dice.random() < 0.15
        self.group = f"v{seed}.example.com"
        self.name = f"converteds.{self.group}"
        self._namespace = namespace
        self._names = 0

    def objects(self) -> list[tuple[str, Obj]]:
        """The definition, if the kind is drawn: the path of its collection, and the object."""
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        return [(path, self.definition(mark("hook", "url")))] if self.is_drawn else []

    def definition(self, url: str) -> Obj:
        """The definition, for the webhook at an address."""
        fields = {name: {"type": "string"} for name in ("way", "size")}
        versions = [
            {"name": version, "served": True, "storage": version == "v1", "subresources": {"status": {}},
             "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                 "spec": {"type": "object", "properties": {**fields, field: {"type": "string", "maxLength": 5}}},
                 "status": {"type": "object", "properties": {"phase": {"type": "string"}}}}}},
             "additionalPrinterColumns": [{"name": "Field", "type": "string", "jsonPath": f".spec.{field}"}]}
            for version, field in (("v1", "a"), ("v2", "b"))
        ]  # fmt: skip
        hook = {"conversionReviewVersions": ["v1"], "clientConfig": {"url": f"{url}/{PLACE}", "caBundle": bundle()}}
        names = {"plural": "converteds", "kind": "Converted"}
        return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": self.name},
                "spec": {"group": self.group, "scope": "Namespaced", "names": names, "versions": versions,
                         "conversion": {"strategy": "Webhook", "webhook": hook}}}  # fmt: skip

    def path(self, version: str) -> str:
        """The collection in one version."""
        return f"/apis/{self.group}/{version}/namespaces/{self._namespace}/converteds"

    def request(self) -> Request:
        """Some object is made, read, changed or deleted in some version."""
        r = self.dice
        version = r.choice(["v1", "v2"])
        path, field = self.path(version), "a" if version == "v1" else "b"
        if not self._names or r.random() < 0.35:
            self._names += 1
            spec = {"way": r.choice(WAYS), field: r.choice(["x", "x", "x", "too long"])}
            return Request("POST", path, "", _JSON, self._object(version, f"c{self._names}", spec), "converteds")
        name = f"c{r.randint(max(1, self._names - 2), self._names)}"
        choice = r.random()
        if choice < 0.3:
            headers = r.choice([{}, {}, {"Accept": TABLE}, {"Accept": PARTIAL}])
            return Request("GET", f"{path}/{name}", "", headers, None, "converteds")
        if choice < 0.45:
            query = r.choice(["", f"fieldSelector=metadata.name%3D{name}", "limit=2", "watch=1&timeoutSeconds=1", *[
                "watch=1&timeoutSeconds=1&resourceVersion=0"], "labelSelector=c%3Dd"])  # fmt: skip
            return Request("GET", path, query, r.choice([{}, {}, {"Accept": TABLE}]), None, "converteds")
        if choice < 0.6:
            query = r.choice(["", "", "dryRun=All", "propagationPolicy=Foreground"])
            return Request("DELETE", f"{path}/{name}", query, {}, None, "converteds")
        changed = {"way": r.choice(WAYS), field: r.choice(["y", "z"])} if r.random() < 0.6 else {"size": r.choice("12")}
        form = r.choice(["merge", "json", "apply", "apply"])
        under = r.choice(["", "", "", "/status"])
        body: Any = {"spec": changed, "status": {"phase": r.choice("PQ")}}
        query = ""
        if form == "json":
            body = [{"op": "add", "path": f"/spec/{key}", "value": value} for key, value in changed.items()]
        elif form == "apply":
            body = self._object(version, name, changed)
            query = f"fieldManager={r.choice(['m1', 'm2'])}{r.choice(['', '&force=true'])}"
        headers = {"Content-Type": PATCHES[form]}
        return Request("PATCH", f"{path}/{name}{under}", query, headers, body, f"converteds{under}")

    def _object(self, version: str, name: str, spec: Obj) -> Obj:
        return {"apiVersion": f"{self.group}/{version}", "kind": "Converted", "metadata": {"name": name}, "spec": spec}
