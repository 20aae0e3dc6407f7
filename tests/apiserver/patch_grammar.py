"""Patches from a grammar, and what all such requests share."""

from __future__ import annotations

import json
import random
from typing import Any
from urllib.parse import quote

from odd_protobuf import OddProtobuf
from odd_texts import OddTexts
from odd_words import ACCEPTS, CONTENTS, FIELDS, LISTS, POINTERS, TIMES
from request_fuzzer import CAPTURED, PARAMETERS, SUBRESOURCES, FuzzedRequest, RequestFuzzer, nested
from sample_objects import path_of

from haru.kube.kinds import Kind, by_kind

Obj = dict[str, Any]


class PatchGrammar(RequestFuzzer):
    """Patches of the four types, from one source of randomness."""

    def __init__(self, source: random.Random, seeds: list[Obj]) -> None:
        super().__init__(source, seeds)
        self.texts = OddTexts(source)
        self.protobuf = OddProtobuf(source, CAPTURED)
        self.stored = [seed for seed in seeds if not self._kind(seed).virtual]

    def _value(self) -> Any:
        """Any value that json can still write."""
        value = super()._value()
        try:
            json.dumps(value)
        except RecursionError:
            return nested(400, "list")
        return value

    @staticmethod
    def _kind(seed: Obj) -> Kind:
        kind = by_kind(seed["apiVersion"], seed["kind"])
        assert kind is not None
        return kind

    def _ask(
        self, method: str, path: str, query: str = "", kind: str = "application/json", body: bytes = b""
    ) -> FuzzedRequest:
        r = self.random
        headers = [("content-type", kind if r.random() < 0.97 else r.choice(CONTENTS))]
        headers.append(("accept", r.choice(ACCEPTS) if r.random() < 0.15 else "application/json"))
        if r.random() < 0.1:
            more = f"{(name := r.choice(list(PARAMETERS)))}={quote(r.choice(PARAMETERS[name]), safe='')}"
            query = f"{query}&{more}" if query else more
        return FuzzedRequest(method, path, query, tuple(headers), body)

    def _named(self, seed: Obj) -> str:
        return f"{path_of(seed)}/{seed['metadata']['name']}"

    def _where(self, seed: Obj) -> tuple[str, str]:
        """A method that takes an object, and its path."""
        return ("POST", path_of(seed)) if self.random.random() < 0.5 else ("PUT", self._named(seed))

    def _json_patch(self) -> FuzzedRequest:
        r = self.random
        seed = r.choice(self.stored)
        operations: list[Any] = []
        for _ in range(r.choice([1, 1, 2, 4, 30])):
            operation: Obj = {"op": r.choice(["add", "remove", "replace", "move", "copy", "test"])}
            for key in ("path", "from"):
                operation[key] = r.choice([self._pointer(seed), self._pointer(seed), r.choice(POINTERS)])
            operation["value"] = self._value()
            if r.random() < 0.1:
                operation[r.choice(list(operation))] = self._value()
            operations.append(operation)
        if r.random() < 0.05:
            doubled = {"op": "copy", "from": "/metadata", "path": "/metadata/x"}
            operations = [doubled] * r.choice([20, 60, 300])
        if r.random() < 0.05:
            operations = [{"op": "add", "path": "/x" * at, "value": {}} for at in range(1, r.choice([150, 260]))]
        return self._patched(seed, "json-patch", operations)

    def _patched(self, seed: Obj, form: str, value: Any, query: str = "") -> FuzzedRequest:
        r = self.random
        path = self._named(seed)
        if r.random() < 0.15:
            path += "/" + r.choice(self._kind(seed).subresources or SUBRESOURCES)
        text = self.texts.json(value) if r.random() < 0.3 else json.dumps(value).encode()
        suffix = "yaml" if form == "apply-patch" else "json"
        return self._ask("PATCH", path, query, f"application/{form}+{suffix}", text)

    def _strategic(self) -> FuzzedRequest:
        r = self.random
        seed = r.choice(self.stored)
        value = json.loads(json.dumps({k: v for k, v in seed.items() if k not in ("apiVersion", "kind")}))
        for _ in range(r.choice([1, 1, 2, 3])):
            self._direct(value)
        if r.random() < 0.2:
            self._bend(value)
        return self._patched(seed, r.choice(["strategic-merge-patch"] * 5 + ["merge-patch"]), value)

    def _direct(self, value: Obj) -> None:
        """Put a directive of the strategic merge somewhere inside."""
        r = self.random
        node: Any = value
        while isinstance(node, dict) and r.random() < 0.85:
            below = [v[0] if isinstance(v, list) and v and isinstance(v[0], dict) else v for v in node.values()]
            below = [v for v in below if isinstance(v, dict)]
            if not below:
                break
            node = r.choice(below)
        lists = [key for key, inner in node.items() if isinstance(inner, list)] or list(LISTS)
        name = r.choice(lists)
        key = LISTS.get(name, "name")
        what = r.randrange(6)
        if what == 0:
            node["$patch"] = r.choice(["delete", "replace", "merge", "", "x", 1, None, {}])
        elif what == 1:
            orders: list[Any] = [
                [{key: "main"}],
                [{key: "x"}, {key: "x"}],
                [],
                [{}],
                ["main"],
                [None],
                "x",
                {},
                None,
                [{key: {}}],
                [{key: []}],
            ]
            node[f"$setElementOrder/{name}"] = r.choice(orders)
        elif what == 2:
            node["$retainKeys"] = r.choice([[], list(node), ["x"], [None], [[]], "x", {}, None, [1]])
        elif what == 3:
            node[f"$deleteFromPrimitiveList/{name}"] = r.choice([["x.y/z"], [], [{}], "x", {}, None, [[]], [1]])
        elif what == 4:
            items = node.get(name) if isinstance(node.get(name), list) else []
            odd = [
                {"$patch": "delete", key: "main"},
                {"$patch": "replace"},
                {"$patch": "delete"},
                {key: None},
                {key: {}},
                {key: []},
                None,
                1,
                [],
            ]
            node[name] = [*(items or []), r.choice(odd)]
        else:
            node[
                r.choice(
                    ["$setElementOrder/", "$deleteFromPrimitiveList/", "$x", "$", "$setElementOrder/a/b", "$patch/x"]
                )
            ] = self._value()

    def _managed(self) -> Any:
        r = self.random

        def fields(depth: int) -> Any:
            if r.random() < 0.1:
                return self._value()
            return {r.choice(FIELDS): fields(depth - 1) if depth else {} for _ in range(r.choice([0, 1, 2, 3]))}

        entries: list[Any] = []
        for _ in range(r.choice([0, 1, 1, 2])):
            entry: Obj = {
                "manager": r.choice(["m0", "m1", "", "x" * 200, "ü"]),
                "operation": r.choice(["Apply", "Update", "x", ""]),
                "apiVersion": r.choice(["v1", "apps/v1", "nothing/v9", "", "a/b/c"]),
                "time": r.choice(TIMES),
                "fieldsType": r.choice(["FieldsV1", "FieldsV1", "FieldsV2", ""]),
                "fieldsV1": fields(5),
                "subresource": r.choice(["", "status", "scale", "x"]),
            }
            for _ in range(r.choice([0, 0, 1, 2])):
                entry.pop(r.choice(list(entry)), None)
            if r.random() < 0.1 and entry:
                entry[r.choice(list(entry))] = self._value()
            entries.append(entry)
        return entries

    def _applied(self) -> FuzzedRequest:
        """Apply, or a write that leaves managed fields of its own behind for the next apply."""
        r = self.random
        seed = r.choice(self.stored)
        value = json.loads(json.dumps(seed))
        if r.random() < 0.6:
            self._bend(value)
        if not isinstance(value.get("metadata"), dict):
            value["metadata"] = {"name": seed["metadata"]["name"]}
        if r.random() < 0.6:
            value["metadata"]["managedFields"] = self._managed()
        if r.random() < 0.35:
            return self._ask("PUT", self._named(seed), body=json.dumps(value).encode())
        query = f"fieldManager=m{r.randrange(3)}" + r.choice(["", "&force=true"])
        if r.random() < 0.15:
            return self._ask("PATCH", self._named(seed), query, "application/apply-patch+yaml", self.texts.yaml())
        return self._patched(seed, "apply-patch", value, query)
