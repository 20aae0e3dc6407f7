"""Situations that need several objects of different kinds, or paths that are no object: what is answered in them.

Connections to pods, services and nodes, pages of one version, namespaces that are being deleted, quotas and limits,
classes of priority and runtime, bindings, watches that tell where their first events end.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

from request_parts import PARTIAL, PATCHES, PROTOBUF, TABLE, Request, mark

Obj = dict[str, Any]
JSON = {"Content-Type": "application/json"}
MERGE = {"Content-Type": PATCHES["merge"]}
_CBOR = "application/cbor"
_UPGRADES = [
    {"Connection": "Upgrade", "Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": "v4.channel.k8s.io"},
    {
        "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13", "Sec-WebSocket-Protocol": "v5.channel.k8s.io",
    },
]  # fmt: skip
CONTAINER = {"name": "a", "image": "i"}


def pod_of(name: str, metadata: Obj | None = None, /, **spec: Any) -> Obj:
    """A pod of one container."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **(metadata or {})},
            "spec": {"containers": [CONTAINER], **spec}}  # fmt: skip


class Situations:
    """The situations of one seed, drawn from dice of their own."""

    def __init__(self, seed: int, namespace: str) -> None:
        self.dice = random.Random(f"situations {seed}")
        self.seed, self.namespace = seed, namespace
        self.root = f"/api/v1/namespaces/{namespace}"
        self.mine = f"situation-{seed}"
        """The name of what it has in no namespace."""
        self._begun: dict[Callable[..., Any], Iterator[Request]] = {}
        self._counts = defaultdict[str, int](int)

    def situations(self) -> dict[Callable[[], Request], int]:
        """What there is, and how often."""
        return {
            self._connection: 4, self._page: 3, self._leaving: 4, self._quota: 3, self._limited: 3, self._priority: 3,
            self._runtime: 2, self._bound: 2, self._begin: 3, self._form: 1, self._owned: 4,
        }  # fmt: skip

    def request(self) -> Request:
        """The next request of some situation."""
        found = self.situations()
        one = self.dice.choices(list(found), list(found.values()))[0]
        if one not in self._begun:
            self._begun[one] = iter(getattr(self, f"{one.__name__}_first", list)())
        return next(self._begun[one], None) or one()

    def post(self, path: str, body: Obj, query: str = "") -> Request:
        """The request that creates an object."""
        return Request("POST", path, query, JSON, body, f"situation {path.rpartition('/')[2]}")

    def fresh(self, stem: str) -> str:
        """A name that was not there yet."""
        self._counts[stem] += 1
        return f"{stem}-{self._counts[stem]}"

    # -- connections --------------------------------------------------------------------------------------------------

    def _connection_first(self) -> list[Request]:
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "empty"}, "spec": {
            "ports": [{"name": "h", "port": 80}, {"name": "s", "port": 443}]}}  # fmt: skip
        pods = f"{self.root}/pods"
        return [
            self.post(pods, pod_of("waits")), self.post(pods, pod_of("placed", nodeName="nowhere")),
            self.post(f"{self.root}/services", service),
        ]  # fmt: skip

    def _connection(self) -> Request:
        r = self.dice
        pod = f"{self.root}/pods/{r.choice(['waits', 'placed', 'none', 'waits:80', 'https:waits:443', 'waits:x'])}"
        under = r.choice(["exec", "exec", "attach", "portforward", "proxy", "proxy/", "proxy/a/b", "log"])
        service = (
            f"{self.root}/services/{r.choice(['empty', 'empty:h', 'https:empty:s', 'empty:9', 'none', 'x:empty'])}"
        )
        path = r.choice(
            [f"{pod}/{under}"] * 4
            + [f"{service}/proxy/x", f"{service}/proxy"]
            + [f"/api/v1/nodes/{r.choice(['none', 'none:10250', 'https:none:1'])}/proxy/{r.choice(['', 'pods'])}"]
        )
        query = r.choice(
            [
                "",
                "",
                "command=ls",
                "command=ls&command=-l&stdout=true",
                "container=a&stdin=true&tty=true",
                "command=ls&container=x&stdout=true",
                "ports=80",
                "ports=x",
                "stdout=x",
                "follow=true",
            ]
        )
        method = r.choice(["GET", "GET", "POST", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"])
        headers = r.choice([{}, {}, *_UPGRADES]) if method in ("GET", "POST") and "proxy" not in path else {}
        body = {} if method in ("PUT", "PATCH", "POST") and not headers else None
        return Request(method, path, query, {**headers, **(JSON if body is not None else {})}, body,
                       f"situation/{path.split('/')[-1] if 'proxy' not in path else 'proxy'}")  # fmt: skip

    # -- pages --------------------------------------------------------------------------------------------------------

    def _page_first(self) -> list[Request]:
        maps = f"{self.root}/configmaps"
        return [
            self.post(maps, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
                "name": f"page-{number}", "labels": {"page": "a"}}}) for number in range(4)
        ]  # fmt: skip

    def _page(self) -> Request:
        r = self.dice
        maps, first = f"{self.root}/configmaps", f"{self.root}/configmaps/page-{r.choice([0, 2, 3])}"
        choice = r.random()
        if choice < 0.1:
            return Request("PATCH", first, "", MERGE, {"data": {"k": self.fresh("v")}}, "situation/page")
        if choice < 0.15:
            return Request("DELETE", first, "", {}, None, "situation/page")
        version = mark(r.choice(["resourceVersion", "old"]), first)
        query = ["labelSelector=page%3Da", f"limit={r.choice([1, 2, 3, 9, 0])}"]
        if r.random() < 0.4:
            query.append(f"continue={mark('continue', maps)}")
        if r.random() < 0.6:
            query.append(f"resourceVersion={r.choice([version, version, version, '0', ''])}")
        if r.random() < 0.6:
            query.append(f"resourceVersionMatch={r.choice(['Exact', 'Exact', 'NotOlderThan'])}")
        r.shuffle(query)
        return Request("GET", maps, "&".join(query), r.choice([{}, {}, {"Accept": TABLE}]), None, "situation/page")

    # -- a namespace that is being deleted ----------------------------------------------------------------------------

    def _leaving_first(self) -> list[Request]:
        r, name = self.dice, f"{self.namespace}-leaving"
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        held = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held", "finalizers": ["x.y/z"]}}
        root = f"/api/v1/namespaces/{name}"
        pod = pod_of("held", {"finalizers": ["x.y/z"]})
        options = r.choice([{}, {"propagationPolicy": "Foreground"}, {"gracePeriodSeconds": 0}])
        return [
            self.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
            self.post(f"{root}/serviceaccounts", account), self.post(f"{root}/configmaps", held),
            self.post(f"{root}/pods", pod),
            Request("DELETE", root, "", JSON, options, "situation/namespace"),
        ]  # fmt: skip

    def _leaving(self) -> Request:
        r = self.dice
        name = r.choice([f"{self.namespace}-leaving"] * 5 + [f"{self.namespace}-none"])
        path = f"/api/v1/namespaces/{name}"
        held = f"{path}/configmaps/held"
        new: Obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}, "data": {"a": "b"}}
        event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "reason": "R", "involvedObject": {
            "kind": "Namespace", "name": name, "namespace": name}}  # fmt: skip
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "LocalSubjectAccessReview", "metadata": {
            "namespace": name}, "spec": {"user": "u", "resourceAttributes": {
                "verb": "get", "resource": "pods", "namespace": name}}}  # fmt: skip
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {}}
        evicted = {"apiVersion": "policy/v1", "kind": "Eviction"}
        bound = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "held"}, "target": {"name": "n1"}}
        dry = r.choice(["", "", "dryRun=All"])
        conditions = [{"type": "NamespaceDeletionContentFailure", "status": "True"}]
        status = {"phase": r.choice(["Active", "Terminating", "x"]), "conditions": conditions}
        finalized = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {
            "finalizers": r.choice([["kubernetes"], ["kubernetes", "x.y/z"], ["x"]])}}  # fmt: skip
        return r.choice([
            self.post(f"{path}/configmaps", new, dry), self.post(f"{path}/pods", pod_of("p"), dry),
            self.post(f"{path}/events", event), self.post(f"{path}/secrets", {"metadata": {"generateName": "g-"}}),
            self.post(f"/apis/authorization.k8s.io/v1/namespaces/{name}/localsubjectaccessreviews", review),
            self.post(f"/apis/coordination.k8s.io/v1/namespaces/{name}/leases", lease),
            self.post(f"{path}/serviceaccounts/default/token", {"spec": {}}),
            self.post(f"{path}/pods/held/eviction", {**evicted, "metadata": {"name": "held"}}),
            self.post(f"{path}/pods/held/binding", bound), self.post(f"{path}/bindings", bound),
            Request("PATCH", held, "", MERGE, {"data": {"a": r.choice("bc")}}, "situation/held"),
            Request("PATCH", f"{path}/configmaps/applied", "fieldManager=m", {"Content-Type": PATCHES["apply"]},
                    {**new, "metadata": {"name": "applied"}}, "situation/held"),
            Request("PUT", f"{path}/configmaps/new", "", JSON, new, "situation/held"),
            Request("DELETE", held, "", {}, None, "situation/held"),
            Request("DELETE", path, "", {}, None, "situation/namespace"),
            Request("GET", path, "", r.choice([{}, {"Accept": TABLE}]), None, "situation/namespace"),
            Request("PUT", f"{path}/finalize", dry, JSON, finalized, "situation/namespace"),
            Request("PATCH", path, "", MERGE, r.choice([
                {"metadata": {"labels": {"a": "b"}}}, {"spec": {"finalizers": []}}, {"status": {"phase": "Active"}},
                {"metadata": {"finalizers": ["x.y/z"]}}]), "situation/namespace"),
            Request("PATCH", f"{path}/status", "", MERGE, {"status": status}, "situation/namespace"),
        ])  # fmt: skip

    # -- what a namespace may have ------------------------------------------------------------------------------------

    def _resources(self) -> Obj:
        r = self.dice
        amounts = {name: r.choice(["100m", "1", "3", "1Gi", "64Mi", "0"]) for name in r.sample(["cpu", "memory"], 1)}
        return r.choice([{}, {}, {"requests": amounts}, {"limits": amounts}, {"requests": amounts, "limits": amounts}])

    def _sized(self, stem: str) -> Request:
        r = self.dice
        container: Obj = {**CONTAINER, "resources": self._resources()}
        spec: Obj = {"containers": [container, {**container, "name": "b"}][: r.choice([1, 1, 2])]}
        if r.random() < 0.3:
            init = {**CONTAINER, "name": "i", "resources": self._resources()}
            spec["initContainers"] = [init | r.choice([{}, {"restartPolicy": "Always"}])]
        spec |= r.choice(
            [
                {},
                {},
                {"resources": self._resources()},
                {"activeDeadlineSeconds": 5},
                {"priorityClassName": "system-node-critical"},
                {"overhead": {"cpu": "1"}},
            ]
        )
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": self.fresh(stem)}, "spec": spec}
        return self.post(f"{self.root}/pods", body, r.choice(["", "", "dryRun=All"]))

    def _quota_first(self) -> list[Request]:
        r, path = self.dice, f"{self.root}/resourcequotas"
        hard = {"pods": r.choice("012"), "requests.cpu": r.choice(["1", "500m"]), "configmaps": "6"}
        hard = dict(r.sample(sorted(hard.items()), r.choice([1, 2, 3])))
        hard |= r.choice([{}, {"limits.memory": "1Gi"}, {"count/pods": "1"}, {"count/leases.coordination.k8s.io": "1"}])
        spec: Obj = {"hard": hard} | r.choice(
            [
                {},
                {},
                {"scopes": [r.choice(["BestEffort", "NotTerminating"])]},
                {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}},
            ]
        )
        if "scopes" in spec or "scopeSelector" in spec:
            spec["hard"] = {"pods": "1"}
        status = {"hard": spec["hard"], "used": dict.fromkeys(spec["hard"], "0")}
        body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "situation"}, "spec": spec}
        return [
            self.post(path, body),
            Request("PATCH", f"{path}/situation/status", "", MERGE, {"status": status}, "resourcequotas"),
        ]

    def _quota(self) -> Request:
        r = self.dice
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self.fresh("l")}}
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": self.fresh("quota")}}
        return r.choice([
            self._sized("quota"), self._sized("quota"), self.post(f"{self.root}/configmaps", made),
            self.post(f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases", {**lease, "spec": {}}),
        ])  # fmt: skip

    def _limited_first(self) -> list[Request]:
        r, found = self.dice, list[Obj]()
        for kind in r.sample(["Container", "Pod", "PersistentVolumeClaim"], r.choice([1, 2, 3])):
            name = "storage" if kind == "PersistentVolumeClaim" else r.choice(["cpu", "memory"])
            low, mid, high = {"cpu": ("200m", "1", "2"), "memory": ("64Mi", "1Gi", "2Gi")}.get(name, ("1Gi", "", "5Gi"))
            limit: Obj = {"type": kind}
            limit |= {"min": {name: low}} if r.random() < 0.6 else {}
            limit |= {"max": {name: high}} if r.random() < 0.6 or len(limit) == 1 else {}
            if kind == "Container":
                limit |= {"default": {name: mid}} if r.random() < 0.5 else {}
                limit |= {"defaultRequest": {name: low}} if r.random() < 0.5 else {}
            if kind != "PersistentVolumeClaim" and r.random() < 0.4:
                limit["maxLimitRequestRatio"] = {name: "2"}
            found.append(limit)
        body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "situation"}, "spec": {"limits": found}}
        return [self.post(f"{self.root}/limitranges", body)]

    def _limited(self) -> Request:
        r = self.dice
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": self.fresh("limited")},
                 "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {
                     "storage": r.choice(["1Mi", "1Gi", "9Gi"])}}}}  # fmt: skip
        if r.random() < 0.3:
            return self.post(f"{self.root}/persistentvolumeclaims", claim)
        return self._sized("limited")

    # -- classes ------------------------------------------------------------------------------------------------------

    def _priority_first(self) -> list[Request]:
        r = self.dice
        made: Obj = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": self.mine},
            "value": r.choice([0, 5, -5, 1000000000, 1000000001]),
            "globalDefault": r.random() < 0.3,
        }
        made |= r.choice([{}, {"preemptionPolicy": r.choice(["Never", "PreemptLowerPriority", "x"])}])
        return [self.post("/apis/scheduling.k8s.io/v1/priorityclasses", made)]

    def _priority(self) -> Request:
        r = self.dice
        names = [self.mine, self.mine, "none", "system-cluster-critical", "system-node-critical", ""]
        spec: Obj = {"priorityClassName": r.choice(names)} if r.random() < 0.85 else {}
        spec |= r.choice(
            [
                {},
                {},
                {"priority": r.choice([5, 0, 2000000000, -1])},
                {"preemptionPolicy": r.choice(["Never", "PreemptLowerPriority"])},
            ]
        )
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER], **spec}}
        group = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {
            "name": self.fresh("group")}, "spec": {"schedulingPolicy": {"basic": {}}, **{
                name: value for name, value in spec.items() if name != "preemptionPolicy"}}}  # fmt: skip
        made = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": self.fresh("d")}, "spec": {
            "selector": {"matchLabels": {"a": "b"}}, "template": template}}  # fmt: skip
        path = f"/apis/scheduling.k8s.io/v1/priorityclasses/{self.mine}"
        return r.choice([
            self.post(f"{self.root}/pods", pod_of(self.fresh("important"), **spec)),
            self.post(f"{self.root}/pods", pod_of(self.fresh("important"), **spec)),
            self.post(f"/apis/scheduling.k8s.io/v1alpha2/namespaces/{self.namespace}/podgroups", group),
            self.post(f"/apis/apps/v1/namespaces/{self.namespace}/deployments", made),
            Request("PATCH", path, "", MERGE, r.choice([
                {"value": 7}, {"globalDefault": True}, {"description": "d"}, {"preemptionPolicy": "Never"}]),
                "situation/class"),
        ])  # fmt: skip

    def _runtime_first(self) -> list[Request]:
        made: Obj = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": self.mine},
                     "handler": "h"}  # fmt: skip
        made |= self.dice.choice(
            [
                {},
                {"overhead": {"podFixed": {"cpu": "250m", "memory": "1Mi"}}},
                {
                    "scheduling": {
                        "nodeSelector": {"a": "b", "c": "d"},
                        "tolerations": [{"key": "k", "operator": "Exists"}],
                    }
                },
            ]
        )
        return [self.post("/apis/node.k8s.io/v1/runtimeclasses", made)]

    def _runtime(self) -> Request:
        r = self.dice
        spec: Obj = {"runtimeClassName": r.choice([self.mine, self.mine, self.mine, "none", ""])}
        spec |= r.choice(
            [
                {},
                {"overhead": {"cpu": "250m"}},
                {"overhead": {"cpu": "250m", "memory": "1Mi"}},
                {"nodeSelector": {"a": r.choice("bx")}},
                {"nodeSelector": {"z": "y"}},
                {"tolerations": [{"key": "k", "operator": "Exists"}]},
            ]
        )
        return self.post(f"{self.root}/pods", pod_of(self.fresh("run"), **spec))

    # -- bindings -----------------------------------------------------------------------------------------------------

    def _bound(self) -> Request:
        r = self.dice
        if r.random() < 0.35 or not self._counts["bind"]:
            spec = r.choice([{}, {}, {"schedulingGates": [{"name": "x.y/z"}]}, {"nodeName": "n1"}])
            return self.post(f"{self.root}/pods", pod_of(self.fresh("bind"), **spec))
        name = f"bind-{r.randint(1, self._counts['bind'])}"
        pod = f"{self.root}/pods/{name}"
        metadata: Obj = {"name": name} | r.choice([
            {}, {}, {"labels": {"l": "m"}}, {"annotations": {"k": "v"}}, {"uid": mark("uid", pod)}, {"name": "other"},
            {"uid": "x"}, {"namespace": "other"}, {"resourceVersion": mark("old", pod)}])  # fmt: skip
        target = r.choice(
            [{"kind": "Node", "name": "n1"}] * 3
            + [
                {"name": "n2"},
                {"kind": "Pod", "name": "n1"},
                {"kind": "Node", "name": "n1", "namespace": "x", "apiVersion": "v1"},
            ]
        )
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        path = r.choice([f"{pod}/binding", f"{self.root}/bindings"])
        headers = {**JSON, **r.choice([{}, {}, {"Accept": PROTOBUF}, {"Accept": PARTIAL}])}
        return Request("POST", path, r.choice(["", "", "dryRun=All"]), headers, body, "situation/binding")

    # -- watches and forms --------------------------------------------------------------------------------------------

    def _begin(self) -> Request:
        """A watch that tells where its first events end, or one by its old path."""
        r = self.dice
        plural = r.choice(["configmaps", "pods", "secrets"])
        if r.random() < 0.25:
            path = f"/api/v1/watch/namespaces/{self.namespace}/{plural}{r.choice(['', '/page-0', '/none'])}"
            return Request("GET", path, "timeoutSeconds=1", {}, None, "situation/watch")
        query = ["watch=1", "timeoutSeconds=1", f"allowWatchBookmarks={r.choice(['true', 'true', '1', 'false', ''])}"]
        query += ["sendInitialEvents=true", "resourceVersionMatch=NotOlderThan"] if r.random() < 0.8 else []
        query.append(
            r.choice(["", "resourceVersion=0", f"labelSelector={quote('page=a')}", "fieldSelector=metadata.name%3Dx"])
        )
        accept = r.choice(["", "", TABLE, PARTIAL])
        headers = {"Accept": accept} if accept else {}
        return Request("GET", f"{self.root}/{plural}", "&".join(filter(None, query)), headers, None, "situation/watch")

    def _form(self) -> Request:
        r = self.dice
        path = f"{self.root}/configmaps"
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "form"}}
        accept = r.choice(
            [
                _CBOR,
                f"{_CBOR},application/json",
                "application/cbor-seq",
                "application/json;as=Table",
                "application/json;as=Table;g=meta.k8s.io;v=v1beta1",
                "application/json;stream=watch",
                "",
                "application/json;as=Nothing;g=meta.k8s.io;v=v1",
                "application/yaml;as=Table;v=v1;g=meta.k8s.io",
            ]
        )
        if r.random() < 0.5:
            return Request("GET", r.choice([path, f"{path}/page-0"]), "", {"Accept": accept}, None, "situation/form")
        kind = r.choice([_CBOR, "application/json", "application/yaml"])
        headers = {"Content-Type": kind, "Accept": accept}
        return Request("POST", path, "dryRun=All", headers, body, "situation/form")

    # -- an object of several managers --------------------------------------------------------------------------------

    def _owned(self) -> Request:
        """Three managers apply parts of one Deployment, its status and its scale, or update them."""
        r = self.dice
        path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments/owned"
        who = r.choice(["m1", "m2", "m3"])
        metadata: Obj = {"name": "owned"}
        if r.random() < 0.5:
            metadata["labels"] = {r.choice("ab"): r.choice("xy")}
        spec: Obj = {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}}}
        containers = [{"name": name, "image": r.choice(["i:1", "i:2"]), **r.choice([{}, {"ports": [
            {"containerPort": 80}]}, {"env": [{"name": "E", "value": r.choice("12")}]}])}
            for name in r.sample("abc", r.choice([1, 1, 2]))]  # fmt: skip
        spec["template"]["spec"] = {"containers": containers}
        if r.random() < 0.4:
            spec["replicas"] = r.choice([1, 2])
        head = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata}
        choice = r.random()
        query = f"fieldManager={who}" + r.choice(["", "", "&force=true"]) + r.choice(["", "", "", "&dryRun=All"])
        apply = {"Content-Type": PATCHES["apply"]}
        if choice < 0.55:
            return Request("PATCH", path, query, apply, {**head, "spec": spec}, "situation/owned")
        if choice < 0.7:
            status = {"replicas": r.choice([1, 2]), "conditions": [{"type": r.choice("AB"), "status": "True"}]}
            return Request("PATCH", f"{path}/status", query, apply, {**head, "status": status}, "situation/owned")
        body: Any = r.choice([{"spec": {"replicas": r.choice([1, 2, 3])}}, {"metadata": {"labels": {"a": "z"}}}, {
            "metadata": {"managedFields": r.choice([[], [{}]])}}, {"spec": {"template": {"spec": {
                "containers": [{"name": "a", "image": "i:3"}]}}}}])  # fmt: skip
        form = r.choice(["merge", "strategic"])
        under = "" if choice < 0.9 or "replicas" not in str(body) else "/scale"
        return Request("PATCH", path + under, f"fieldManager={who}", {"Content-Type": PATCHES[form]}, body,
                       "situation/owned")  # fmt: skip
