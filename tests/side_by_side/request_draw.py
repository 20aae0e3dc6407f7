"""Random requests about one namespace: what clients do with objects of some kinds, and what they get wrong."""

from __future__ import annotations

import copy
import json
import random
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from object_draw import ObjectDraw
from request_clients import Clients
from request_conversions import Conversions
from request_custom import DEFINITIONS, CustomKind
from request_devices import Devices
from request_nodes import NodeSituations
from request_parts import (
    BODIES,
    PARTIAL,
    PARTIALS,
    PATCHES,
    PROTOBUF,
    TABLE,
    Request,
    Resource,
    chosen,
    json_patch,
    mark,
    merge_patch,
)
from request_policies import Policies
from request_samples import ALL, Obj
from request_scenes import Scenes
from request_users import Users
from request_webhooks import Webhooks

from haru.kube.kinds import by_kind
from haru.kube.wire_out import encode_protobuf

KINDS = 3
"""So many kinds a seed is about."""
_LABELS = [
    "a=b",
    "a",
    "!a",
    "a!=b",
    "a in (b,c)",
    "a notin (b)",
    "x=y",
    "a=b,x=y",
    "a==b",
    "a in (",
    "a>1",
    "",
    "=",
    "a b",
]
_FIELDS = [
    *("metadata.name=NAME", "metadata.name!=NAME", "metadata.namespace=NAMESPACE", "metadata.name=none"),
    *("status.phase=Running", "status.phase=Active", "spec.nodeName=n1", "type=Opaque", "reason=R", "metadata.name"),
    *("involvedObject.name=a", "spec.unschedulable=false", "spec.nope=1", "spec.driver=x.y", "spec.model=llm", "="),
    "spec.signerName=x.y/z",
]


class RequestDraw:
    """Draws requests that follow each other; `known` has the objects that are there, as the first server tells them."""

    def __init__(self, seed: int, known: dict[str, Obj], only: str = "") -> None:
        self.dice = random.Random(seed)
        self.namespace = f"n{seed}"
        self.known = known
        """By path."""
        self.objects = ObjectDraw(self.dice)
        picked = [one for one in ALL if only in ("", one["kind"])]
        weights = [
            3 if by_kind(one["apiVersion"], one["kind"]) and "/" not in one["apiVersion"] else 2 for one in picked
        ]
        given = self.dice.choices(picked, weights, k=KINDS)
        self.resources = [Resource(self._renamed(one, seed), self.namespace) for one in given]
        self.custom = CustomKind(seed, self.namespace)
        self._definition: Obj = {}
        self.objects.custom = self.custom
        self.policies = Policies(random.Random(f"policies {seed}"), seed, self.namespace, self.resources)
        self.devices = Devices(seed, self.namespace, only)
        self.resources += self.devices.resources
        self.webhooks = Webhooks(seed, self.namespace, self.resources)
        self.scenes = Scenes(seed, self.namespace, self.resources)
        self.situations = NodeSituations(seed, self.namespace)
        self.clients = Clients(seed, self.namespace)
        self.conversions = Conversions(seed, self.namespace)
        self.users = Users(random.Random(f"users {seed}"), seed, self.namespace, self.resources)

    def define(self, definition: Obj) -> None:
        """Draw the objects of this definition, too, and more often than others."""
        self.resources += self.custom.resources(definition) * 2
        self._definition = definition

    def _renamed(self, given: Obj, seed: int) -> Obj:
        kind = by_kind(given["apiVersion"], given["kind"])
        made = copy.deepcopy(given)
        if kind is None or kind.namespaced:
            if self.dice.random() < 0.7:
                made["metadata"].pop("finalizers", None)
            return made
        made["metadata"].pop("finalizers", None)
        name = made["metadata"]["name"]
        if kind.kind == "CustomResourceDefinition":
            plural = f"{made['spec']['names']['plural']}{seed}"
            made["spec"]["names"] = {"plural": plural, "singular": f"drill{seed}", "kind": f"Drill{seed}"}
            made["metadata"]["name"] = f"{plural}.ml.example.com"
        elif kind.kind == "APIService":
            made["spec"]["group"] = f"g{seed}.io"
            made["metadata"]["name"] = f"v1.g{seed}.io"
        else:
            made["metadata"]["name"] = f"{name}-{seed}"
        return made

    def next(self) -> Request:
        """A request about one of the kinds, or about what somebody may do, or one of a scene, situation or habit."""
        if self.clients.dice.random() < 0.15:
            return self.clients.request()
        if self.conversions.is_drawn and self.conversions.dice.random() < 0.2:
            return self.conversions.request()
        if self.scenes.dice.random() < 0.12:
            return self.scenes.request()
        if self.situations.dice.random() < 0.15:
            return self.situations.request()
        if self._definition and self.custom.changes.random() < 0.06:
            path = f"{DEFINITIONS}/{self.custom.name}"
            return self.custom.next_definition(self.known.get(path, self._definition))
        chance = self.users.dice.random()
        if chance < 0.08:
            return self.users.question()
        made = self._next()
        made = self.devices.in_another_version(made) or self.devices.crowded(made)
        return made if chance < 0.85 else self.users.path() if chance < 0.87 else self.users.dressed(made)

    def _next(self) -> Request:
        r = self.dice
        of = r.choice(self.resources)
        if r.random() < 0.03:
            return self._odd(of)
        there = [path for path in self.known if path.rpartition("/")[0] == of.path]
        if of.is_virtual or not there or r.random() < 0.15:
            return self._create(of)
        path = r.choice(there)
        verb = r.choices(
            (self._update, self._patch, self._apply, self._subresource, self._delete, self._get, self._list),
            (4, 6, 4, 5 if of.subresources else 0, 2, 2, 4),
        )[0]
        made = verb(of, path)
        if made.method != "GET" and "/" in made.resource and made.headers.get("Accept") == TABLE:
            made = replace(made, headers={**made.headers, "Accept": "*/*"})  # Haru answers, 1.36 does not
        return made

    # -- parts --------------------------------------------------------------------------------------------------------

    def _writing(self, *more: str) -> str:
        """Query parameters of a write."""
        r, found = self.dice, list(more)
        if r.random() < 0.15:
            found.append(f"dryRun={r.choice(['All', 'All', 'All', 'x', ''])}")
        if r.random() < 0.4:
            found.append(f"fieldValidation={r.choice(['Strict', 'Strict', 'Warn', 'Ignore', 'x'])}")
        if r.random() < 0.25 and not any(one.startswith("fieldManager") for one in found):
            found.append(f"fieldManager={r.choice(['m1', 'm2', 'x' * 200, ''])}")
        return "&".join(found)

    def _headers(self, content_type: str = "", lists: bool = False) -> dict[str, str]:
        r, found = self.dice, dict[str, str]()
        if content_type:
            found["Content-Type"] = content_type
        accept = r.random()
        if accept < 0.08:
            found["Accept"] = TABLE
        elif accept < 0.14:
            found["Accept"] = PARTIALS if lists else PARTIAL
        elif accept < 0.24:
            found["Accept"] = PROTOBUF
        elif accept < 0.26:
            found["Accept"] = r.choice(
                [f"{PROTOBUF},application/json", "text/html", "application/yaml", f"{TABLE},application/json", "*/*"]
            )
        return found

    def _base(self, path: str) -> Obj:
        """The object at a path as a client would send it back: with marks where servers differ."""
        text = json.dumps(self.known[path])
        for what, value in chosen(self.known[path]):
            text = text.replace(json.dumps(value), f'"{mark("#" + what, path)}"') if isinstance(value, int) else text
            text = text.replace(str(value), mark(what, path)) if isinstance(value, str) else text
        made: Obj = json.loads(text)
        metadata = made.get("metadata", {})
        metadata.pop("managedFields", None)
        for key in ("resourceVersion", "creationTimestamp"):
            if key in metadata:
                metadata[key] = mark(key, path)
        if self.dice.random() < 0.4:
            metadata.pop("resourceVersion", None)
        elif self.dice.random() < 0.06:
            metadata["resourceVersion"] = self.dice.choice([mark("old", path), "1", "x", "0"])
        if self.dice.random() < 0.03:
            metadata["uid"] = "5d5a0d5c-1c1f-4c6a-9df5-2d8f0c2b1a11"
        return made

    def _body(self, obj: Obj, of: Resource) -> tuple[Any, str]:
        """How an object is sent, and its type."""
        if not of.is_custom and "«" not in json.dumps(obj) and self.dice.random() < 0.06:
            try:
                encoded = encode_protobuf(obj)
            except Exception:
                encoded = None
            if encoded:
                return encoded, PROTOBUF
        return obj, self.dice.choices(["application/json", "application/yaml"], [20, 1])[0]

    # -- verbs --------------------------------------------------------------------------------------------------------

    def _create(self, of: Resource) -> Request:
        r, made = self.dice, copy.deepcopy(of.sample)
        if r.random() < 0.5:
            made = self.objects.changed(made, 3)
        if isinstance(made.get("metadata"), dict):
            if r.random() < 0.1 and not made["metadata"].get("generateName"):
                made["metadata"]["name"] = r.choice(["A_b", "", "x" * 254, "a/b", "-", None, "ok2"])
            elif made["metadata"].get("generateName") and r.random() < 0.7:
                made["metadata"].pop("name", None)
        body, content_type = self._body(made, of)
        if r.random() < 0.03:
            content_type = r.choice(["text/plain", "", "application/json; charset=utf-8", "application/xml"])
        return Request("POST", of.path, self._writing(), self._headers(content_type), body, of.plural)

    def _update(self, of: Resource, path: str) -> Request:
        made = self._base(path)
        if self.dice.random() < 0.85:
            made = self.objects.changed(made, 2)
        body, content_type = self._body(made, of)
        return Request("PUT", path, self._writing(), self._headers(content_type), body, of.plural)

    def _patch(self, of: Resource, path: str, under: str = "") -> Request:
        r, old = self.dice, self._base(path)
        new = self.objects.changed(old, 2)
        form = r.choices(["json", "merge", "strategic"], [3, 4, 4])[0]
        if form == "json":
            body: Any = json_patch(old, new)
            if r.random() < 0.2:
                odd = [
                    {"op": "test", "path": "/metadata/name", "value": r.choice([of.name, "x"])},
                    {"op": "remove", "path": r.choice(["/spec", "/nothing", "/metadata/labels/a", "/metadata/name"])},
                    {"op": "add", "path": r.choice(["/metadata/labels/z", "/spec/-", "spec", ""]), "value": {}},
                    {"op": "copy", "from": r.choice(["/metadata/labels", "/none"]), "path": "/metadata/annotations"},
                    {"op": "move", "from": r.choice(["/metadata/labels", "/none"]), "path": "/metadata/annotations"},
                    {"op": "x", "path": "/spec"},
                    {"path": "/spec"},
                ]  # fmt: skip
                body.insert(r.choice([0, len(body)]), r.choice(odd))
        else:
            body = merge_patch(old, new)
            body = body if isinstance(body, dict) else {}
            if r.random() < 0.15:
                body.setdefault("metadata", {})["resourceVersion"] = r.choice(
                    [mark("resourceVersion", path), mark("old", path), "1"]
                )
        return Request("PATCH", path + under, self._writing(), self._headers(PATCHES[form]), body, of.plural + under)

    def _apply(self, of: Resource, path: str, under: str = "") -> Request:
        r = self.dice
        made = copy.deepcopy(of.sample) if r.random() < 0.6 else self._base(path)
        made["metadata"] = {**made.get("metadata", {}), "name": path.rpartition("/")[2]}
        if r.random() < 0.7:
            made["metadata"].pop("uid", None)
            made["metadata"].pop("resourceVersion", None)
            made["metadata"].pop("creationTimestamp", None)
        if r.random() < 0.7:
            made = self.objects.changed(made, 2)
        if r.random() < 0.5 and isinstance(made.get("spec"), dict) and made["spec"]:
            made["spec"].pop(r.choice(list(made["spec"])))
        query = [f"fieldManager={r.choice(['m1', 'm1', 'm2'])}"] if r.random() < 0.97 else []
        if r.random() < 0.4:
            query.append(f"force={r.choice(['true', 'true', 'false', 'x'])}")
        target = path if under or r.random() < 0.9 else f"{of.path}/fresh{'' if of.is_namespaced else self.namespace}"
        if target != path:
            for name in ("deletionTimestamp", "deletionGracePeriodSeconds"):
                made["metadata"].pop(name, None)
            made["metadata"]["name"] = target.rpartition("/")[2]
        return Request(
            "PATCH", target + under, self._writing(*query), self._headers(PATCHES["apply"]), made, of.plural + under
        )

    def _delete(self, of: Resource, path: str) -> Request:
        r, options, query = self.dice, Obj(), []
        if r.random() < 0.15:
            query.append(f"labelSelector={quote(r.choice(_LABELS))}")
            return (
                Request("DELETE", of.path, "&".join(query), self._headers(), None, of.plural)
                if of.is_namespaced
                else self._list(of, path)
            )
        for key, values in (
            ("propagationPolicy", ["Foreground", "Background", "Orphan", "Orphan", "x", ""]),
            ("gracePeriodSeconds", [0, 0, 1, 30, -1]),
            ("orphanDependents", [True, False]),
            ("dryRun", [["All"], ["x"], []]),
            ("preconditions", [{"uid": mark("uid", path)}, {"uid": "x"}]),
            ("preconditions", [{"resourceVersion": mark(one, path)} for one in ("resourceVersion", "old")]),
        ):  # fmt: skip
            if r.random() < 0.25:
                options[key] = r.choice(values)
        if r.random() < 0.4:
            query = [f"{key}={quote(str(value))}" for key, value in options.items() if isinstance(value, str | int)]
            return Request("DELETE", path, "&".join(query), self._headers(), None, of.plural)
        if r.random() < 0.05:
            options["unknown"] = 1
        if r.random() < 0.3:
            options |= {"apiVersion": "v1", "kind": r.choice(["DeleteOptions", "DeleteOptions", "Pod"])}
        return Request("DELETE", path, "", self._headers("application/json"), options, of.plural)

    def _get(self, of: Resource, path: str) -> Request:
        query = self.dice.choice(["", "", "pretty=true", "resourceVersion=0", "resourceVersion=x", "x=y"])
        path = path if self.dice.random() < 0.8 else f"{of.path}/{self.dice.choice(['none', 'A_b'])}"
        return Request("GET", path, query, self._headers(), None, of.plural)

    def _list(self, of: Resource, path: str) -> Request:
        r, query = self.dice, []
        name = path.rpartition("/")[2]
        if not of.is_namespaced:
            query.append(f"fieldSelector=metadata.name%3D{quote(name)}")
        elif r.random() < 0.5:
            chosen = r.choice(_FIELDS).replace("NAMESPACE", self.namespace).replace("NAME", name)
            query.append(f"fieldSelector={quote(chosen)}")
        if r.random() < 0.4:
            query.append(f"labelSelector={quote(r.choice(_LABELS))}")
        for key, values in (
            ("limit", ["1", "2", "500", "0", "-1", "x"]),
            ("continue", [mark("continue", of.path), "x", ""]),
            ("resourceVersion", ["0", "1", "x", "", mark("resourceVersion", path), "99999999999"]),
            ("resourceVersionMatch", ["Exact", "NotOlderThan", "x"]),
            ("sendInitialEvents", ["true", "false"]),
            ("timeoutSeconds", ["5", "x"]),
        ):
            if r.random() < (0.25 if key == "limit" else 0.12):
                query.append(f"{key}={r.choice(values)}")
        return Request("GET", of.path, "&".join(query), self._headers(lists=True), None, of.plural)

    def _odd(self, of: Resource) -> Request:
        r = self.dice
        method, path = r.choice([
            ("POST", f"{of.path}/{of.name}"), ("PUT", of.path), ("PATCH", of.path), ("DELETE", f"{of.path}x"),
            ("GET", f"{of.path}/{of.name}/nothing"), ("PUT", f"{of.path}/{of.name}/nothing"), ("OPTIONS", of.path),
            ("GET", f"{of.root}/nothings"), ("GET", "/apis/nothing.io/v1/x"), ("HEAD", of.path), ("GET", of.path + "/"),
            ("POST", f"{of.root}/{of.plural}"), ("GET", f"{of.root}/namespaces/{self.namespace}"), ("BREW", of.path),
            ("GET", f"{of.root}/watch/{of.plural}/x/y/z/w"), ("GET", "/nothing"), ("POST", of.path), ("POST", of.path),
        ])  # fmt: skip
        body = r.choice(
            [None, b"", b"x", b"{", b"[]", b"null", b'{"kind":"x"}', b'{"a":1}{"b":2}', b"{}", b'"x"', of.sample]
        )
        if method in ("GET", "HEAD", "OPTIONS"):
            return Request(method, path, "", self._headers(), None, f"odd {of.plural}")
        return Request(method, path, self._writing(), self._headers("application/json"), body, f"odd {of.plural}")

    def _subresource(self, of: Resource, path: str) -> Request:
        r, under = self.dice, self.dice.choice(of.subresources)
        make = BODIES.get(under)
        if under in ("log",):
            return Request(
                "GET",
                f"{path}/{under}",
                r.choice(["", "container=x", "tailLines=x", "follow=x"]),
                {},
                None,
                f"{of.plural}/{under}",
            )
        if make is None or (under in ("scale",) and r.random() < 0.5):
            choice = r.random()
            if choice < 0.2:
                return Request("GET", f"{path}/{under}", "", self._headers(), None, f"{of.plural}/{under}")
            if choice < 0.45:
                return self._patch(of, path, f"/{under}") if under != "scale" else self._scale(of, path)
            if choice < 0.65 and under != "scale":
                return self._apply(of, path, f"/{under}")
            if under == "scale":
                return self._scale(of, path)
            made = self.objects.changed(self._status(path), 2)
            body, content_type = self._body(made, of)
            return Request(
                "PUT", f"{path}/{under}", self._writing(), self._headers(content_type), body, f"{of.plural}/{under}"
            )
        name = path.rpartition("/")[2]
        body = make(r, name, path)
        if r.random() < 0.3:
            body = self.objects.changed(body, 2)
        return Request(
            "POST", f"{path}/{under}", self._writing(), self._headers("application/json"), body, f"{of.plural}/{under}"
        )

    def _scale(self, of: Resource, path: str) -> Request:
        r = self.dice
        replicas = r.choice([0, 1, 5, -1, 2**31, "x"])
        metadata = {"name": path.rpartition("/")[2], "namespace": self.namespace}
        if r.random() < 0.5:
            metadata["resourceVersion"] = mark(r.choice(["resourceVersion", "old"]), path)
        body: Any = {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": metadata,
            "spec": {"replicas": replicas},
        }
        form = r.choice(["", "merge", "strategic", "apply", "json"])
        if form == "json":
            body = [{"op": "replace", "path": "/spec/replicas", "value": replicas}]
        elif form in ("merge", "strategic"):
            body = {"spec": {"replicas": replicas}}
        more = [f"fieldManager={r.choice(['m1', 'm2'])}", *r.choice([[], ["force=true"]])] if form == "apply" else []
        return Request("PATCH" if form else "PUT", f"{path}/scale", self._writing(*more),
                       self._headers(PATCHES.get(form, "application/json")), body, f"{of.plural}/scale")  # fmt: skip

    def _status(self, path: str) -> Obj:
        """The object with a status: the one that it has, or one of its schema."""
        made = self._base(path)
        if (full := self.devices.status(made)) is not None:
            return {**made, "status": full}
        kind = by_kind(made.get("apiVersion", ""), made.get("kind", ""))
        of = kind.message_type.fields.get("status") if kind else None
        if of is not None and self.dice.random() < 0.6:
            made["status"] = self.objects.value(of, 3)
        return made
