"""What clients do that requests about one kind do not show: each scene has objects of its own, or twists a request.

Evictions beside a budget, tokens and their reviews, collections deleted with options, pages of Tables, watches that
begin with what is there, selectors by fields of custom kinds, bodies with names twice, approvals of signing requests.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from request_parts import PATCHES, TABLE, Request, Resource, eviction, mark, token
from request_users import TOKEN
from signing_request_objects import REQUEST

Obj = dict[str, Any]
_JSON = {"Content-Type": "application/json"}
_MERGE = {"Content-Type": PATCHES["merge"]}
_MEMBER = re.compile(r'"([^"\\]+)": ("[^"\\]*"|\d+|true|false)')
_REVIEWS = "/apis/authentication.k8s.io/v1"
_SIGNING = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
_CERTIFICATE = "eA=="


class Scenes:
    """The scenes of one seed, drawn from dice of their own: what else is drawn stays the same."""

    def __init__(self, seed: int, namespace: str, resources: Sequence[Resource]) -> None:
        self.dice = random.Random(f"scenes {seed}")
        self._seed, self._namespace, self._resources = seed, namespace, resources
        self._first = iter((self._pod, self._condition, self._new_budget, self._count, self._evict))
        self.signing = f"{_SIGNING}/scene-{seed}"
        """What it leaves in no namespace."""
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"

    def request(self) -> Request:
        """The next request of some scene."""
        scenes = (self._budget, self._token, self._review, self._collection, self._page, self._watch, self._selected,
                  self._twice, self._approval)  # fmt: skip
        return self.dice.choices(scenes, (5, 2, 2, 3, 2, 2, 3, 4, 3))[0]()

    # -- pods that are evicted ----------------------------------------------------------------------------------------

    def _budget(self) -> Request:
        """A pod and its budget first; then evictions, and other counts of the budget."""
        if (first := next(self._first, None)) is not None:
            return first()
        r = self.dice
        scene = r.choice([self._pod, self._condition, self._count, self._evict, self._evict, self._evict])
        return scene() if r.random() < 0.85 else Request("GET", f"{self._budgets}/scene", resource="scene/budget")

    def _pod(self) -> Request:
        spec = {"nodeName": "n1", "containers": [{"name": "a", "image": "i"}]}
        metadata = {"name": "scene", "labels": {"scene": "a"}}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        return Request("POST", self._pods, "", _JSON, body, "scene/pod")

    def _condition(self) -> Request:
        r = self.dice
        conditions = [{"type": "Ready", "status": r.choice(["True", "True", "False"])}]
        status = {"phase": r.choice(["Running", "Running", "Running", "Pending", "Failed"]), "conditions": conditions}
        return Request("PATCH", f"{self._pods}/scene/status", "", _MERGE, {"status": status}, "scene/pod")

    def _new_budget(self) -> Request:
        r = self.dice
        spec: Obj = {"minAvailable": r.choice([0, 1, "50%"]), "selector": {"matchLabels": {"scene": "a"}}}
        if r.random() < 0.5:
            spec["unhealthyPodEvictionPolicy"] = r.choice(["IfHealthyBudget", "AlwaysAllow"])
        body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "scene"}, "spec": spec}
        return Request("POST", self._budgets, "", _JSON, body, "scene/budget")

    def _count(self) -> Request:
        r = self.dice
        status = {"observedGeneration": r.choice([1, 1, 1, 0]), "disruptionsAllowed": r.choice([0, 1, 2, -1])}
        status |= {"currentHealthy": r.choice([0, 1, 2]), "desiredHealthy": r.choice([0, 1, 2]), "expectedPods": 2}
        return Request("PATCH", f"{self._budgets}/scene/status", "", _MERGE, {"status": status}, "scene/budget")

    def _evict(self) -> Request:
        r = self.dice
        body = eviction(r, "scene", f"{self._pods}/scene")
        if r.random() < 0.3:
            body["metadata"] |= r.choice(
                [{"namespace": "other"}, {"namespace": self._namespace}, {"labels": {"a": "b"}}]
            )
        if r.random() < 0.1:
            body["apiVersion"] = "policy/v1beta1"
        query = r.choice(["", "", "", "dryRun=All", "fieldValidation=Strict"])
        return Request("POST", f"{self._pods}/scene/eviction", query, _JSON, body, "scene/eviction")

    # -- tokens -------------------------------------------------------------------------------------------------------

    def _token(self) -> Request:
        r = self.dice
        body = token(r, "default", "")
        if r.random() < 0.5:
            body["metadata"] = r.choice([{"name": "x"}, {"namespace": "x"}, {"uid": "x"}, {"labels": {"a": "b"}}])
        path = f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{r.choice(['default', 'default', 'none'])}/token"
        return Request("POST", path, r.choice(["", "", "dryRun=All"]), _JSON, body, "scene/token")

    def _review(self) -> Request:
        r = self.dice
        if r.random() < 0.3:
            who = {"Impersonate-User": "u", "Impersonate-Group": "g", "Impersonate-Extra-A%2fb": "c"}
            headers = {**_JSON, **r.choice([{}, who, {"Accept": TABLE}])}
            body: Obj = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
            return Request("POST", f"{_REVIEWS}/selfsubjectreviews", "", headers, body, "scene/review")
        spec: Obj = {"token": r.choice([mark(TOKEN, self._namespace)] * 4 + ["x", "", "a.b.c"])}
        if r.random() < 0.4:
            spec["audiences"] = r.choice([["https://kubernetes.default.svc"], ["x"], ["x", ""], []])
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        return Request("POST", f"{_REVIEWS}/tokenreviews", "", _JSON, body, "scene/review")

    # -- collections --------------------------------------------------------------------------------------------------

    def _of_namespace(self) -> Resource | None:
        found = [one for one in self._resources if one.is_namespaced and not one.is_virtual]
        return self.dice.choice(found) if found else None

    def _collection(self) -> Request:
        """A collection is deleted, seldom for good."""
        r, of = self.dice, self._of_namespace()
        if of is None:
            return self._token()
        options: Obj = {"dryRun": ["All"]} if r.random() < 0.8 else {}
        options |= r.choice([{}, {}, {"propagationPolicy": r.choice(["Foreground", "Orphan", "x"])},
                             {"gracePeriodSeconds": r.choice([0, -1])}, {"preconditions": {"uid": "x"}},
                             {"orphanDependents": True, "propagationPolicy": "Orphan"}])  # fmt: skip
        query = [r.choice(["", "limit=1", "limit=x", "resourceVersion=1", "resourceVersion=0", "continue=x"]),
                 r.choice(["", "labelSelector=a%3Db", f"fieldSelector=metadata.name%3D{of.name}", "fieldSelector=x"]),
                 r.choice(["", "", "resourceVersionMatch=Exact", "timeoutSeconds=x", "dryRun=All"])]  # fmt: skip
        return Request("DELETE", of.path, "&".join(filter(None, query)), _JSON, options, f"scene {of.plural}")

    def _page(self) -> Request:
        """A page of a Table, or the one that follows."""
        r, of = self.dice, self._of_namespace()
        if of is None:
            return self._token()
        query = r.choice(
            ["limit=1", "limit=2", f"limit=1&continue={mark('continue', of.path)}", "limit=1&includeObject=x"]
        )
        query += r.choice(["", "", "&includeObject=None", "&includeObject=Object", "&resourceVersion=0"])
        return Request("GET", of.path, query, r.choice([{"Accept": TABLE}, {}]), None, f"scene {of.plural}")

    def _watch(self) -> Request:
        """A watch that begins with what is there."""
        r, of = self.dice, self._of_namespace()
        if of is None:
            return self._token()
        query = ["watch=1&timeoutSeconds=1", r.choice(["sendInitialEvents=true", "sendInitialEvents=false", ""])]
        query.append(r.choice(["resourceVersionMatch=NotOlderThan"] * 3 + ["resourceVersionMatch=Exact", ""]))
        query.append(r.choice(["", "", "resourceVersion=0", "continue=x", "labelSelector=a%3Db", "limit=1"]))
        return Request("GET", of.path, "&".join(filter(None, query)), {}, None, f"scene {of.plural}")

    def _selected(self) -> Request:
        """Objects of a custom kind by a field of their spec, whether it may select them or not."""
        r, found = self.dice, [one for one in self._resources if one.is_custom and one.sample.get("spec")]
        if not found:
            return self._page()
        of = r.choice(found)
        name, value = r.choice(list(of.sample["spec"].items()))
        told = json.dumps(value) if not isinstance(value, str) else value
        text = f".spec.{name}"[r.choice([0, 1, 1, 1]) :] + r.choice(["=", "!=", "=="]) + r.choice([told, told, "", "x"])
        text += r.choice(["", "", f",metadata.name={of.name}"])
        method = "GET" if r.random() < 0.85 else "DELETE"
        return Request(method, of.path, f"fieldSelector={quote(text)}", {}, None, f"scene {of.plural}")

    # -- bodies -------------------------------------------------------------------------------------------------------

    def _twice(self) -> Request:
        """A new object, or an applied one, with members that occur twice or that nobody knows."""
        r, of = self.dice, self.dice.choice(self._resources)
        name = "twice" if of.is_namespaced else f"twice-{self._seed}"
        text = json.dumps({**of.sample, "metadata": {**of.sample["metadata"], "name": name}})
        for _ in range(r.choice([1, 1, 2, 3])):
            text = self._with_member(text)
        wish = r.choice(["Strict", "Strict", "Warn", "Ignore"])
        query = f"fieldValidation={wish}&dryRun=All"
        if of.is_virtual or r.random() < 0.7:
            return Request("POST", of.path, query, _JSON, text.encode(), f"scene {of.plural}")
        headers = {"Content-Type": PATCHES["apply"]}
        return Request(
            "PATCH", f"{of.path}/{name}", f"{query}&fieldManager=m1", headers, text.encode(), f"scene {of.plural}"
        )

    def _with_member(self, text: str) -> str:
        places = list(_MEMBER.finditer(text))
        found = self.dice.choice(places)
        more = self.dice.choice([found.group(), f'"{found[1]}": {self.dice.choice(places)[2]}', '"unknown": 1'])
        return f"{text[: found.end()]}, {more}{text[found.end() :]}"

    # -- signing requests ---------------------------------------------------------------------------------------------

    def _approval(self) -> Request:
        r, path = self.dice, self.signing
        metadata, of = {"name": f"scene-{self._seed}"}, {"apiVersion": "certificates.k8s.io/v1"}
        if r.random() < 0.25:
            spec: Obj = {"request": REQUEST, "signerName": r.choice(["x.y/z", "kubernetes.io/kube-apiserver-client"])}
            spec["usages"] = r.choice([["client auth"], ["client auth"], ["x"], []])
            body = {**of, "kind": "CertificateSigningRequest", "metadata": metadata, "spec": spec}
            return Request("POST", _SIGNING, "", _JSON, body, "scene/signing")
        types = r.sample(["Approved", "Denied", "Failed", "x", "Approved"], r.choice([0, 1, 1, 1, 2]))
        conditions = [{"type": one, "status": r.choice(["True", "True", "False", ""]), "reason": "r"} for one in types]
        status: Obj = {"conditions": conditions}
        if r.random() < 0.2:
            status["certificate"] = _CERTIFICATE
        body = {**of, "kind": "CertificateSigningRequest", "metadata": metadata, "status": status}
        form = r.choice(["merge", "strategic", "apply"])
        query = "fieldManager=m1&force=true" if form == "apply" else r.choice(["", "", "dryRun=All"])
        under = r.choice(["approval", "approval", "approval", "status"])
        headers = {"Content-Type": PATCHES[form]}
        return Request("PATCH", f"{path}/{under}", query, headers, body, f"scene/signing/{under}")
