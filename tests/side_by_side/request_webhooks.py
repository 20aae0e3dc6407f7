"""Admission webhooks that are at work: a server for each side, whose paths say what is answered, and what it was asked.

Each side asks a server of its own, so that the reviews that both send can be compared, too.
"""

from __future__ import annotations

import base64
import json
import random
import ssl
import tempfile
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from request_conversions import PLACE, converted
from request_parts import Resource, mark
from webhook_server import bundle, server_pair

Obj = dict[str, Any]
HOOK = "hook"
"""Under this name a side knows the address of its server."""
_VERSION = "admissionregistration.k8s.io/v1"


def _patched(*operations: Obj, **more: Any) -> Obj:
    data = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": data, **more}


def _refused(**status: Any) -> Obj:
    return {"allowed": False, "status": status}


_LABELS = {"op": "add", "path": "/metadata/labels", "value": {"a": "b", "hook": "x"}}
ANSWERS: dict[str, Obj] = {
    "allow": {"allowed": True},
    "warn": {"allowed": True, "warnings": ["careful", "again", ""]},
    "long": {"allowed": True, "warnings": ["x" * 5000, "y\nz", "\x01"]},
    "audit": {"allowed": True, "auditAnnotations": {"k": "v", "a b": "w"}},
    "deny": {"allowed": False},
    "message": _refused(message="not so"),
    "code": _refused(message="not so", code=409, reason="Conflict"),
    "odd-code": _refused(message="not so", code=200),
    "reason": _refused(reason="Invalid", details={"causes": [{"field": "spec", "message": "m", "reason": "R"}]}),
    "retry": _refused(message="later", code=429, reason="TooManyRequests", details={"retryAfterSeconds": 3}),
    "deny-warn": {"allowed": False, "warnings": ["careful"], "status": {"message": "no"}},
    "neither": {},
    "labels": _patched(_LABELS),
    "labels-warn": _patched(_LABELS, warnings=["labelled"]),
    "label": _patched({"op": "add", "path": "/metadata/labels/hook", "value": "y"}),
    "annotations": _patched({"op": "add", "path": "/metadata/annotations", "value": {"k": "hooked"}}),
    "replicas": _patched({"op": "add", "path": "/spec/replicas", "value": 3}),
    "remove": _patched({"op": "remove", "path": "/metadata/labels"}),
    "no-spec": _patched({"op": "remove", "path": "/spec"}),
    "name": _patched({"op": "replace", "path": "/metadata/name", "value": "other"}),
    "namespace": _patched({"op": "replace", "path": "/metadata/namespace", "value": "other"}),
    "kind": _patched({"op": "replace", "path": "/kind", "value": "Other"}),
    "finalizers": _patched({"op": "add", "path": "/metadata/finalizers", "value": ["x.y/hook"]}),
    "unknown": _patched({"op": "add", "path": "/unknown", "value": 1}),
    "wrong-type": _patched({"op": "add", "path": "/metadata/labels", "value": "text"}),
    "invalid": _patched({"op": "add", "path": "/metadata/labels", "value": {"a b": "c"}}),
    "nowhere": _patched({"op": "add", "path": "/nothing/a/b", "value": 1}),
    "test": _patched({"op": "test", "path": "/metadata/name", "value": "never"}),
    "none": _patched(),
    "untyped": {"allowed": True, "patch": base64.b64encode(b"[]").decode()},
    "other-type": {"allowed": True, "patchType": "MergePatch", "patch": base64.b64encode(b"{}").decode()},
    "patchless": {"allowed": True, "patchType": "JSONPatch"},
    "broken": {"allowed": True, "patchType": "JSONPatch", "patch": base64.b64encode(b"{").decode()},
    "uid": {"allowed": True, "uid": "other"},
}
"""The response of each path."""
RAW: dict[str, tuple[int, bytes]] = {
    "text": (200, b"hello"), "empty": (200, b"{}"), "nothing": (200, b""), "fails": (500, b"broken"),
    "lost": (404, b"404 page not found"), "list": (200, b"[]"), "no-response": (200, b""),
}  # fmt: skip
_MUTATING = [
    *("labels", "labels", "labels-warn", "label", "annotations", "replicas", "remove", "no-spec", "name", "namespace"),
    *("kind", "finalizers", "unknown", "wrong-type", "invalid", "nowhere", "test", "none", "untyped", "other-type"),
    *("patchless", "broken"),
]
_BOTH = ["allow", "allow", "warn", "long", "audit", "deny", "message", "code", "odd-code", "reason", "retry", "neither"]
_BOTH += ["deny-warn", "uid", "slow", *RAW]
_CONDITIONS = [
    *("object.metadata.name != 'a'", "request.operation == 'CREATE'", "!request.dryRun", "oldObject == null"),
    *("object.spec.replicas > 1", "has(object.metadata.labels)", "1 / 0 > 1", "request.userInfo.username == 'jane'"),
    "authorizer.group('').resource('pods').check('get').allowed()",
]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone meanwhile says nothing."""


class HookServer:
    """The server of one side; `asked` are the reviews that came."""

    def __init__(self) -> None:
        self.asked: list[Obj] = []
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                place = self.path.partition("?")[0].strip("/")
                if place == PLACE:  # how often each server converts is its own affair
                    self._answer(*converted(review))
                    return
                asked.append({"path": self.path.partition("?")[0], **review})
                if place == "slow":
                    time.sleep(1.5)
                status, body = RAW.get(place, (200, b""))
                if place in ANSWERS or place in ("slow", "no-response"):
                    response = {"uid": review["request"]["uid"], **ANSWERS.get(place, {"allowed": True})}
                    made = {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}
                    body = json.dumps(made if place != "no-response" else made | {"response": None}).encode()
                self._answer(status, body)

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = _Server(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as directory:
            certificate, key = Path(directory) / "hook.crt", Path(directory) / "hook.key"
            certificate.write_bytes(server_pair().certificate)
            key.write_bytes(server_pair().key)
            context.load_cert_chain(certificate, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def taken(self) -> list[Obj]:
        """The reviews since the last call, in one order: validating webhooks are asked at once."""
        found = sorted(self.asked, key=lambda one: str(one["path"]))
        self.asked.clear()
        return found

    def close(self) -> None:
        """Serve nothing more."""
        self._server.shutdown()
        self._server.server_close()


class Webhooks:
    """The webhooks of one seed, about the resources that it is about."""

    def __init__(self, seed: int, namespace: str, resources: Sequence[Resource]) -> None:
        self.dice = random.Random(f"webhooks {seed}")
        self._namespace, self._name, self._resources = namespace, f"hooks-{seed}", resources
        self.are_at_work = self.dice.random() < 0.25

    def objects(self) -> list[tuple[str, Obj]]:
        """The configurations: paths of collections, and objects."""
        found = []
        for kind in ("Mutating", "Validating") if self.are_at_work else ():
            many = range(self.dice.choice([0, 1, 1, 2, 3]))
            hooks = [self._hook(number, kind) for number in many]
            made = {"apiVersion": _VERSION, "kind": f"{kind}WebhookConfiguration", "metadata": {"name": self._name}}
            path = f"/apis/{_VERSION}/{kind.lower()}webhookconfigurations"
            found += [(path, {**made, "webhooks": hooks})] if hooks else []
        return found

    def _hook(self, number: int, kind: str) -> Obj:
        r = self.dice
        answers = _MUTATING + _BOTH if kind == "Mutating" else _BOTH * 3 + _MUTATING
        place = r.choice(answers if r.random() < 0.7 else ["allow", "labels", "warn"])
        rules = [
            {
                "operations": r.choice([["*"], ["CREATE"], ["UPDATE"], ["CREATE", "UPDATE"], ["DELETE"], ["CONNECT"]]),
                "apiGroups": [of.group], "apiVersions": [r.choice(["*", "*", "v1"])],
                "resources": r.choice([[of.plural], [of.plural, f"{of.plural}/status"], [f"{of.plural}/*"], ["*/*"]]),
                "scope": r.choice(["*", "*", "Namespaced", "Cluster"]),
            }
            for of in self._resources
            if of.plural != "apiservices"  # kube-apiserver writes them for definitions, and relies on their labels
        ]  # fmt: skip
        made: Obj = {
            "name": f"h{number}.hooks.example.com", "rules": rules,
            "clientConfig": {"url": f"{mark(HOOK, 'url')}/{place}", "caBundle": bundle()},
            "sideEffects": r.choice(["None", "None", "None", "NoneOnDryRun"]),
            "failurePolicy": r.choice(["Fail", "Fail", "Ignore"]),
            "admissionReviewVersions": r.choice([["v1"], ["v1"], ["v1", "v1beta1"]]),
            "timeoutSeconds": 1 if place == "slow" else 10,
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self._namespace}},
            "matchPolicy": r.choice(["Equivalent", "Exact"]),
        }  # fmt: skip
        if kind == "Mutating":
            made["reinvocationPolicy"] = r.choice(["Never", "IfNeeded"])
        if r.random() < 0.2:
            made["objectSelector"] = {"matchLabels": {"a": "b"}}
        if r.random() < 0.3:
            made["matchConditions"] = [{"name": "c", "expression": r.choice(_CONDITIONS)}]
        return made
