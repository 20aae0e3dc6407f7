"""Users with few rights: random roles for them, requests in their name, and questions about what they may do."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from request_parts import Request, Resource, mark

Obj = dict[str, Any]
_RBAC, _AUTHORIZATION = "rbac.authorization.k8s.io/v1", "authorization.k8s.io/v1"
_VERBS = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "*", "impersonate", "bind"]
_MODES = ["user-info", "serviceaccount", "arbitrary-node"]
_PATHS = ["/healthz", "/api", "/apis/*", "/metrics", "/x", "*", "/version", "/openapi/v3"]
TOKEN = "token"


class Users:
    """The users of one seed: `bob`, whom an administrator impersonates, and the namespace's account by its token."""

    def __init__(self, dice: random.Random, seed: int, namespace: str, resources: Sequence[Resource]) -> None:
        self.dice, self._resources, self._namespace = dice, resources, namespace
        self._bob, self._group, self._few = f"bob-{seed}", f"devs-{seed}", f"few-{seed}"

    def roles(self) -> list[tuple[str, Obj]]:
        """What gives them some rights: paths of collections, and objects to be created there."""
        cluster, local = f"/apis/{_RBAC}", f"/apis/{_RBAC}/namespaces/{self._namespace}"
        found = [
            (f"{local}/roles", self._object("Role", rules=self._rules(False))),
            (f"{cluster}/clusterroles", self._object("ClusterRole", rules=self._rules(True))),
            (f"{local}/rolebindings", self._object("RoleBinding", **self._bound("Role"))),
            (f"{cluster}/clusterrolebindings", self._object("ClusterRoleBinding", **self._bound("ClusterRole"))),
        ]
        return found if self.dice.random() < 0.7 else found[:3]

    def _object(self, kind: str, **members: Any) -> Obj:
        return {"apiVersion": _RBAC, "kind": kind, "metadata": {"name": self._few}, **members}

    def _bound(self, kind: str) -> Obj:
        account = {"kind": "ServiceAccount", "name": "default", "namespace": self._namespace}
        subjects = [
            {"kind": "User", "name": self._bob, "apiGroup": "rbac.authorization.k8s.io"},
            {"kind": "Group", "name": self._group, "apiGroup": "rbac.authorization.k8s.io"},
            account,
        ]
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": self._few}
        return {"roleRef": reference, "subjects": self.dice.sample(subjects, self.dice.choice([1, 2, 3]))}

    def _rules(self, of_cluster: bool) -> list[Obj]:
        r, found = self.dice, []
        for _ in range(r.choice([1, 2, 3])):
            of = r.choice(self._resources)
            resources = [of.plural, f"{of.plural}/status", "*", "*/scale", "users", "groups", "serviceaccounts", "pods"]
            rule = {
                "verbs": r.sample(_VERBS, r.choice([1, 2, 4])),
                "apiGroups": r.choice([[of.group], [of.group], ["*"], ["", "apps"]]),
                "resources": [of.plural, *r.sample(resources, r.choice([0, 1, 2]))],
            }
            if r.random() < 0.3:
                mode, verb = r.choice(_MODES), r.choice(["get", "list", "create", "update", "patch"])
                rule["verbs"] = [*rule["verbs"], f"impersonate-on:{mode}:{verb}"]
                about = {"verbs": [f"impersonate:{mode}"], "apiGroups": ["authentication.k8s.io"]}
                found.append(about | {"resources": r.choice([["users"], ["*"], ["users", "groups"], ["nodes"]])})
            if r.random() < 0.25:
                rule["resourceNames"] = [r.choice([of.name, "a", "jane"])]
            found.append(rule)
        if of_cluster and r.random() < 0.6:
            found.append({"verbs": r.sample(["get", "post", "*"], 1), "nonResourceURLs": r.sample(_PATHS, 2)})
        return found

    def dressed(self, request: Request) -> Request:
        """The request in somebody's name."""
        r = self.dice
        names = {"Impersonate-User": self._bob, "Impersonate-Group": r.choice([self._group, self._group, "x"])}
        if r.random() < 0.5:
            return replace(request, headers={**request.headers, **names})
        headers = {**request.headers, "Authorization": f"Bearer {mark(TOKEN, self._namespace)}"}
        whom = r.choice([
            {}, {}, {}, {"Impersonate-User": "jane"}, {"Impersonate-User": self._bob, "Impersonate-Group": "x"},
            {"Impersonate-User": f"system:serviceaccount:{self._namespace}:default"}, {"Impersonate-Group": "x"},
            {"Impersonate-User": "system:node:n1"}, {"Impersonate-User": "jane", "Impersonate-Uid": "u"},
            {"Impersonate-User": "jane", "Impersonate-Extra-Scopes": "s"}, {"Impersonate-User": "system:anonymous"},
        ])  # fmt: skip
        return replace(request, headers={**headers, "Impersonate-User": "", "Impersonate-Group": "", **whom})

    def path(self) -> Request:
        """A request for a path that is no resource, in somebody's name."""
        return self.dressed(Request("GET", self.dice.choice(["/x", "/healthz/nothing", "/logs", "/nothing"])))

    def question(self) -> Request:
        """A question about rights."""
        r, of = self.dice, self.dice.choice(self._resources)
        attributes: Obj = {"verb": r.choice(_VERBS), "group": of.group, "resource": of.plural}
        attributes |= r.choice(
            [{"namespace": self._namespace}, {"namespace": self._namespace}, {}, {"namespace": "other"}]
        )
        for key, values in (
            ("name", [of.name, "a"]), ("subresource", ["status", "scale"]), ("version", ["v1", "*"]), ("group", ["*"]),
            ("fieldSelector", [{"rawSelector": "metadata.name=a"}, {"requirements": [
                {"key": "metadata.name", "operator": "In", "values": ["a"]}]}, {"requirements": []}, {}]),
            ("labelSelector", [{"rawSelector": "a=b"}, {"requirements": [{"key": "a", "operator": "x"}]}]),
            ("resource", ["", "*", "pods/log"]), ("verb", ["", "*"]),
        ):  # fmt: skip
            if r.random() < 0.15:
                attributes[key] = r.choice(values)
        spec: Obj = {"resourceAttributes": attributes}
        if r.random() < 0.2:
            spec = {"nonResourceAttributes": {"path": r.choice([*_PATHS, ""]), "verb": r.choice(["get", "post", ""])}}
            spec |= r.choice([{}, {}, {}, {"resourceAttributes": attributes}])
        kind = r.choice(
            ["SelfSubjectAccessReview", "SubjectAccessReview", "LocalSubjectAccessReview", "SelfSubjectRulesReview"]
        )
        if kind in ("SubjectAccessReview", "LocalSubjectAccessReview"):
            account = f"system:serviceaccount:{self._namespace}:default"
            spec |= r.choice([{"user": self._bob}, {"groups": [self._group]}, {"user": account}, {"user": "x"}, {}])
        elif kind == "SelfSubjectRulesReview":
            spec = r.choice([{"namespace": self._namespace}, {"namespace": "other"}, {}])
        at = f"namespaces/{self._namespace}/" if kind.startswith("Local") else ""
        body = {"apiVersion": _AUTHORIZATION, "kind": kind, "spec": spec}
        path = f"/apis/{_AUTHORIZATION}/{at}{kind.lower()}s"
        asked = Request("POST", path, "", {"Content-Type": "application/json"}, body, kind)
        return self.dressed(asked) if kind.startswith("Self") else asked
