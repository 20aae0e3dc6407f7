"""Random requests that resemble real ones: real paths and bodies, bent in ways that clients and attackers bend them."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from haru.kube import yaml
from haru.kube.kinds import all_kinds

Obj = dict[str, Any]
CAPTURED = [path.read_bytes() for path in sorted((Path(__file__).parent.parent / "data" / "wire").glob("*.bin"))]

METHODS = ["GET"] * 6 + ["POST"] * 6 + ["PUT"] * 4 + ["PATCH"] * 8 + ["DELETE"] * 3 + ["HEAD", "OPTIONS", "BREW"]
NAMES = ["a", "web", "default", "", ".", "..", "A_B", "x" * 300, "%2e", "ü", "status", "log", "0"]
SUBRESOURCES = [
    *("status", "scale", "binding", "eviction", "log", "token", "finalize", "approval", "resize"),
    *("ephemeralcontainers", "exec", "nothing"),
]
OTHER_PATHS = [
    *("/", "/api", "/apis", "/api/v1", "/api/", "/apis/apps", "/apis/apps/v1", "/version", "/healthz", "/livez"),
    *("/readyz/ping", "/metrics", "/openapi/v3", "/openapi/v3/api/v1", "/openapi/v2", "/api/v2/pods", "//", "/x"),
    *("/apis/nothing/v1/things", "/api/v1/watch/pods", "/api/v1/watch", "/api/v1/watch/namespaces/default/pods/a"),
]
CONTENT_TYPES = [
    *["application/json"] * 4,
    *("application/yaml", "application/vnd.kubernetes.protobuf", "text/plain", "", "application/json; charset=x", ";;"),
]
PATCH_TYPES = [
    *("application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json"),
    *("application/apply-patch+yaml", "application/json"),
]
ACCEPTS = [
    *[""] * 4,
    *("*/*", "application/yaml", "application/json;as=Table;v=v1;g=meta.k8s.io", "text/html", "application/json;as=X"),
    *("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", ";q=", "application/json;q=x,*/*;q=0.1", "\xff"),
    "application/yaml;as=Table;v=v1beta1;g=meta.k8s.io",
    "application/vnd.kubernetes.protobuf",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
]
PARAMETERS: dict[str, list[str]] = {
    "limit": ["1", "0", "-1", "x", "9" * 30, "٣", "1_0", " 1"],
    "continue": [
        "x",
        "e30",
        "bnVsbA",
        "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6OTk5OTk5OTk5OTksInN0YXJ0IjoicG9kcy8ifQ",
        "ü",
    ],
    "resourceVersion": ["0", "1", "5", "999999999", "-1", "x", "9" * 30, "9" * 5000, "²"],
    "resourceVersionMatch": ["Exact", "NotOlderThan", "x"],
    "labelSelector": [
        "a=b",
        "a in (b,c)",
        "!a",
        "a in (",
        ",,,",
        "a=" + "b" * 5000,
        "=",
        "a notin ()",
        "\x00",
        "a>9",
        "(" * 500,
    ],
    "fieldSelector": [
        "metadata.name=a",
        "status.phase=Running",
        "spec.nope=1",
        "metadata.name!=a",
        "=",
        "a",
        "\\",
        "metadata.name=a\\",
    ],
    "watch": ["1", "true", "", "0", "maybe"],
    "timeoutSeconds": ["0", "1", "-1", "9" * 400, "x"],
    "allowWatchBookmarks": ["true"],
    "sendInitialEvents": ["true", "false", "x"],
    "dryRun": ["All", "x", ""],
    "fieldManager": ["m", "", "x" * 200, "ü\n"],
    "force": ["true", "x"],
    "fieldValidation": ["Strict", "Warn", "Ignore", "x"],
    "includeObject": ["None", "Metadata", "Object", "x"],
    "gracePeriodSeconds": ["0", "-5", "x", "9" * 40],
    "propagationPolicy": ["Foreground", "Orphan", "x"],
    "orphanDependents": ["true", "x"],
    "pretty": ["1", ""],
    "verbose": [""],
    "timeout": ["1s", "x"],
    "container": ["main", "x"],
    "hash": ["x"],
}
HEADERS = [
    ("impersonate-user", "jane"),
    ("impersonate-group", "system:masters"),
    ("impersonate-extra-%ff", "x"),
    ("if-none-match", '"x"'),
    ("accept-encoding", "gzip"),
    ("content-length", "99999999999"),
    ("content-length", "x"),
    ("user-agent", "\xff/1"),
    ("user-agent", ""),
    ("authorization", "Bearer wrong"),
    ("authorization", "Bearer a.b.c"),
    ("authorization", "Bearer eyJhbGciOiJub25lIn0.e30."),
    ("authorization", "Basic eDp5"),
    ("authorization", ""),
]
VALUES: list[Callable[[random.Random], Any]] = [
    lambda r: None,
    lambda r: r.choice([0, -1, 1, 2**31, 2**63, -(2**63), 2**64, 10**400, 0.5, 1e300, -0.0]),
    lambda r: r.choice(
        ["", "a", "\x00", "ü", "x" * 300, "1", "1Gi", "2026-01-02T03:04:05Z", "a/b/c", "\ud800", "-", "{{"]
    ),
    lambda r: r.choice([True, False]),
    lambda r: r.choice([[], {}, [[]], [{}], {"": ""}, [None], {"a": None}, [1, "a", {}]]),
    lambda r: nested(r.choice([5, 150, 250, 3000]), r.choice(["list", "object"])),
    lambda r: {"$patch": r.choice(["delete", "replace", "merge", "x", 1])},
    lambda r: {"$retainKeys": r.choice([["a"], "a", [1], [{}]]), "a": 1},
    lambda r: {"$setElementOrder/containers": r.choice([[{"name": "main"}], "x", [1], [{}], None])},
    lambda r: {"$deleteFromPrimitiveList/finalizers": r.choice([["a"], "a", [{}]])},
    lambda r: [
        {"manager": "m", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {"f:x": nested(4, "object")}}
    ],
]


def nested(depth: int, shape: str) -> Any:
    """A value so many levels deep."""
    value: Any = {} if shape == "object" else []
    for _ in range(depth):
        value = {"a": value} if shape == "object" else [value]
    return value


@dataclass(frozen=True)
class FuzzedRequest:
    """One request; `repr` of it is what a failing test shows."""

    method: str
    path: str
    query: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


class RequestFuzzer:
    """Makes requests from one source of randomness."""

    def __init__(self, source: random.Random, seeds: list[Obj]) -> None:
        self.random = source
        self.seeds = seeds
        self.kinds = all_kinds()

    def request(self) -> FuzzedRequest:
        r = self.random
        method = r.choice(METHODS)
        seed = r.choice(self.seeds)
        path = self._path(seed, 0.1 if method == "POST" else 0.75)
        patching = method == "PATCH"
        content_type = r.choice(PATCH_TYPES if patching and r.random() < 0.95 else CONTENT_TYPES)
        headers = [("content-type", content_type), ("accept", r.choice(ACCEPTS))]
        if r.random() < 0.15:
            headers.append(r.choice(HEADERS))
        body = b""
        if method in ("POST", "PUT", "PATCH") or r.random() < 0.2:
            body = self._body(method, seed, content_type)
        return FuzzedRequest(method, path, self._query(patching), tuple(headers), body)

    def _path(self, seed: Obj, named: float) -> str:
        r = self.random
        if r.random() < 0.08:
            return r.choice(OTHER_PATHS)
        kind = next(k for k in self.kinds if (k.api_version, k.kind) == (seed["apiVersion"], seed["kind"]))
        if r.random() < 0.1:
            kind = r.choice(self.kinds)
        parts = ["api" if not kind.group else f"apis/{kind.group}", kind.version]
        if kind.namespaced and r.random() < 0.95:
            parts += ["namespaces", "default" if r.random() < 0.9 else r.choice(NAMES)]
        parts.append(kind.plural)
        if r.random() < named or (named < 0.5 and r.random() < 0.2):
            parts.append(seed["metadata"]["name"] if r.random() < 0.9 else r.choice(NAMES))
            if r.random() < 0.3:
                parts.append(
                    r.choice(kind.subresources or SUBRESOURCES) if r.random() < 0.8 else r.choice(SUBRESOURCES)
                )
        return "/" + "/".join(parts) + ("/" if r.random() < 0.03 else "")

    def _query(self, patching: bool) -> str:
        r = self.random
        chosen = [f"fieldManager=m{r.randrange(3)}"] if patching else []
        while r.random() < 0.45:
            name = r.choice(list(PARAMETERS))
            chosen.append(f"{name}={quote(r.choice(PARAMETERS[name]), safe='')}")
        if r.random() < 0.02:
            chosen.append(r.choice(["&&==", "%zz", "\xff=\xff", "a" * 5000]))
        return "&".join(chosen)

    # --- bodies

    def _body(self, method: str, seed: Obj, content_type: str) -> bytes:
        r = self.random
        if content_type == "application/vnd.kubernetes.protobuf":
            return self._bytes(r.choice(CAPTURED))
        value = self._patch(seed) if content_type == "application/json-patch+json" else self._object(seed, method)
        text = self._text(value, content_type)
        return self._bytes(text) if r.random() < 0.1 else text

    def _text(self, value: Any, content_type: str) -> bytes:
        if "yaml" in content_type and self.random.random() < 0.5:
            try:
                return yaml.dump(value).encode("utf-8", "surrogatepass")
            except Exception:
                pass
        try:
            return json.dumps(value).encode()
        except RecursionError:
            return b"[" * 5000

    def _bytes(self, data: bytes) -> bytes:
        r = self.random
        changed = bytearray(data)
        for _ in range(r.randrange(4)):
            if not changed:
                break
            at = r.randrange(len(changed))
            what = r.randrange(4)
            if what == 0:
                changed[at] = r.randrange(256)
            elif what == 1:
                del changed[at : at + r.randrange(1, 20)]
            elif what == 2:
                changed[at:at] = bytes(r.randrange(256) for _ in range(r.randrange(1, 5)))
            else:
                changed[at:at] = changed[at : at + r.randrange(1, 50)]
        return bytes(changed)

    def _object(self, seed: Obj, method: str) -> Any:
        r = self.random
        value = json.loads(json.dumps(seed))
        if method == "POST" and r.random() < 0.7:
            value["metadata"]["name"] = r.choice([f"n{r.randrange(50)}", seed["metadata"]["name"]])
        if method == "PATCH" and r.random() < 0.3:
            value = {key: value[key] for key in ("metadata", "spec", "status") if key in value and r.random() < 0.6}
        if r.random() < 0.03:
            return self._value()
        for _ in range(r.choice([0, 1, 1, 2, 4])):
            self._bend(value)
        return value

    def _value(self) -> Any:
        return self.random.choice(VALUES)(self.random)

    def _bend(self, value: Any) -> None:
        """Replace, drop, repeat or add one thing somewhere inside."""
        r = self.random
        node = value
        while isinstance(node, dict | list) and node:
            key = r.choice(list(node)) if isinstance(node, dict) else r.randrange(len(node))
            inner = node[key]
            if not isinstance(inner, dict | list) or not inner or r.random() < 0.25:
                what = r.random()
                if what < 0.5:
                    node[key] = self._value()
                elif what < 0.65:
                    del node[key]
                elif isinstance(node, list):
                    node.append(copy.copy(inner))
                else:
                    node[r.choice(["x", "status", "metadata", "managedFields", "name", "spec", "$patch"])] = (
                        self._value()
                    )
                return
            node = inner

    def _pointer(self, value: Any) -> str:
        r = self.random
        path = ""
        while isinstance(value, dict | list) and value and r.random() < 0.8:
            key = r.choice(list(value)) if isinstance(value, dict) else r.randrange(len(value))
            path += "/" + str(key).replace("~", "~0").replace("/", "~1")
            value = value[key]
        return path + r.choice(["", "", "", "/-", "/x", "/0", "/" + "9" * 5000, "/~", "/~2"])

    def _patch(self, seed: Obj) -> Any:
        r = self.random
        if r.random() < 0.03:
            return self._value()
        operations = []
        for _ in range(r.choice([1, 1, 2, 5])):
            operation = {
                "op": r.choice(["add", "add", "remove", "replace", "move", "copy", "test", "x"]),
                "path": self._pointer(seed),
                "from": self._pointer(seed),
                "value": self._value(),
            }
            if r.random() < 0.1:
                operation.pop(r.choice(list(operation)))
            operations.append(operation)
        return operations
