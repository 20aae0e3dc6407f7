"""What clients do in several steps with one object: directives of patches, resizes, debug containers, deletions.

Each habit has objects of its own in the namespace, and begins with their creation.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from request_parts import PARTIAL, PATCHES, TABLE, Request, mark

Obj = dict[str, Any]
_JSON = {"Content-Type": "application/json"}
_CHANGES = {name: {"Content-Type": value} for name, value in PATCHES.items()}
_AMOUNTS = ["0", "100m", "250m", "1", "2", "64Mi", "1Gi", "2Gi", "1.5", "x", "-1", ""]
_CONDITION = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}


class Clients:
    """The habits of one seed, drawn from dice of their own."""

    def __init__(self, seed: int, namespace: str) -> None:
        self.dice = random.Random(f"clients {seed}")
        self.seed, self._namespace = seed, namespace
        self._core, self._apps = (f"/{root}/namespaces/{namespace}" for root in ("api/v1", "apis/apps/v1"))
        self._begun = set[Callable[[], Request]]()
        self._habits: dict[Callable[[], Request], int] = {
            self._directives: 6, self._tests: 3, self._resize: 4, self._debug: 3, self._network: 4, self._ends: 4,
            self._volume: 2, self._job: 3, self._token: 2, self._watch: 2, self._fields: 2, self._encoded: 2,
            self._somebody: 2, self._autoscaler: 2, self._set: 2, self._event: 2,
        }  # fmt: skip

    def request(self) -> Request:
        """The next request of some habit."""
        return self.dice.choices(list(self._habits), list(self._habits.values()))[0]()

    def _first(self, habit: Callable[[], Request], path: str, body: Obj) -> Request | None:
        """The creation of the object of a habit, the first time, and seldom again."""
        if habit in self._begun and self.dice.random() > 0.06:
            return None
        self._begun.add(habit)
        return self._ask("POST", path, body)

    def _ask(self, method: str, path: str, body: Any, form: str = "", query: str = "") -> Request:
        """A request, seldom a dry run."""
        headers = _CHANGES[form] if form else _JSON
        found = [query] if query else []
        if self.dice.random() < 0.08:
            found.append("dryRun=All")
        of = "/".join(path.split("/")[5 if path.startswith("/api/") else 6 :: 2])
        return Request(method, path, "&".join(found), headers, body, of)

    def _form(self) -> str:
        return self.dice.choice(["merge", "strategic", "strategic"])

    # -- directives of strategic merge patches ------------------------------------------------------------------------

    def _directives(self) -> Request:
        """A Deployment whose lists are merged, ordered, replaced and thinned out."""
        r, path = self.dice, f"{self._apps}/deployments/directed"
        body = {
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {
                "name": "directed", "labels": {"a": "b", "c": "d"}, "finalizers": ["x.y/z", "x.y/w"]},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "strategy": {"type": "RollingUpdate"}, "template": {
                "metadata": {"labels": {"a": "b"}}, "spec": self._template()}},
        }  # fmt: skip
        if (first := self._first(self._directives, f"{self._apps}/deployments", body)) is not None:
            return first
        patch = r.choice([self._of_template, self._of_template, self._of_template, self._of_whole])()
        return self._ask("PATCH", path, patch, r.choice(["strategic"] * 9 + ["merge"]))

    @staticmethod
    def _template() -> Obj:
        container = {"image": "i", "env": [{"name": one, "value": "1"} for one in "EFG"], "ports": [
            {"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53}],
            "volumeMounts": [{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/b"}]}  # fmt: skip
        return {
            "containers": [{"name": one, **container} for one in "abc"], "volumes": [
                {"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "c"}}],
            "imagePullSecrets": [{"name": "s"}, {"name": "t"}], "hostAliases": [{"ip": "10.0.0.5", "hostnames": ["h"]}],
            "tolerations": [{"key": "k", "operator": "Exists"}], "nodeSelector": {"a": "b", "c": "d"},
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}],
        }  # fmt: skip

    def _of_whole(self) -> Obj:
        r = self.dice
        return r.choice([
            {"spec": {"strategy": r.choice([{"$retainKeys": ["type"], "type": "Recreate"}, {"$patch": "replace", "type":
                "Recreate"}, {"$retainKeys": ["type"], "type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
                {"$retainKeys": ["x"], "type": "Recreate"}, {"$retainKeys": "type"}, {"type": "Recreate"},
                {"$retainKeys": []}, {"$patch": "delete"}, None])}},
            {"metadata": {"$deleteFromPrimitiveList/finalizers": r.choice([["x.y/z"], ["none"], []])}},
            {"metadata": {"finalizers": r.choice([["x.y/v"], ["x.y/w"]]), "$setElementOrder/finalizers": r.choice([
                ["x.y/v", "x.y/w", "x.y/z"], ["x.y/v"], ["x.y/z", "x.y/v"], [], "x"])}},
            {"metadata": {"labels": {"$patch": r.choice(["replace", "delete", "merge", "x", 1]), "e": "f"}}},
            {"$patch": r.choice(["replace", "delete", "merge"]), "metadata": {"name": "directed"}},
            {"spec": {"selector": {"$patch": "replace", "matchLabels": {"a": "b"}}}},
            {"spec": {"template": {"metadata": {"labels": {"a": "b", "x": None}, "$patch": "merge"}}}},
        ])  # fmt: skip

    def _of_template(self) -> Obj:
        r = self.dice
        spec: Obj = {}
        for member in r.sample([self._containers, self._plain_lists, self._volumes, self._inner], r.choice([1, 1, 2])):
            spec |= member()
        return {"spec": {"template": {"spec": spec}}}

    def _containers(self) -> Obj:
        r = self.dice
        names = r.sample("abcd", r.choice([1, 2, 3, 4]))
        items: list[Any] = [{"name": one} | r.choice([
            {"image": "i:2"}, {"$patch": "delete"}, {"$patch": "replace", "image": "i:3"}, {"$patch": "merge"},
            {"$patch": "x"}, {"env": None}, {"image": None}, {"resources": {"limits": {"cpu": "1"}}}])
            for one in r.sample(names, r.choice([1, len(names)]))]  # fmt: skip
        if r.random() < 0.1:
            items.append(r.choice([{"$patch": "replace"}, {"image": "x"}, "x", None, {"$patch": "delete"}, {}]))
        made: Obj = {"containers": items}
        if r.random() < 0.5:
            order: list[Any] = [{"name": one} for one in r.choice([names, names[::-1], "abcd", names[:1]])]
            made["$setElementOrder/containers"] = order if r.random() < 0.9 else r.choice([[{}], ["a"], "a", None])
        return made

    def _plain_lists(self) -> Obj:
        r = self.dice
        return r.choice([
            {"tolerations": [{"key": "l", "operator": "Exists"}]},
            {"imagePullSecrets": [{"name": r.choice("stu"), **r.choice([{}, {"$patch": "delete"}])}]},
            {"$setElementOrder/imagePullSecrets": [{"name": "t"}, {"name": "s"}]},
            {"hostAliases": [{"ip": r.choice(["10.0.0.5", "10.0.0.6"]), **r.choice([
                {"hostnames": ["j"]}, {"$patch": "delete"}])}]},
            {"topologySpreadConstraints": [{"topologyKey": "z", **r.choice([
                {"whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 2}, {"maxSkew": 3}, {"$patch": "delete"}])}]},
            {"nodeSelector": r.choice([{"$patch": "replace", "e": "f"}, {"a": None}, {"$retainKeys": ["a"]}])},
        ])  # fmt: skip

    def _volumes(self) -> Obj:
        r = self.dice
        source = r.choice([{"emptyDir": {}}, {"secret": {"secretName": "s"}}, {"configMap": None}, {"emptyDir": None}])
        return {"volumes": [{"name": r.choice("vwx"), **source, **r.choice([
            {}, {"$retainKeys": ["name", *source]}, {"$retainKeys": ["name"]}, {"$patch": "delete"}])}]}  # fmt: skip

    def _inner(self) -> Obj:
        """A list within an item of a list."""
        r = self.dice
        member = r.choice([
            {"env": [{"name": r.choice("EFH"), **r.choice([
                {"value": "2"}, {"$patch": "delete"}, {"value": None, "valueFrom": {"fieldRef": {
                    "fieldPath": "metadata.name"}}}])}]},
            {"env": [{"name": "Z", "value": "9"}], "$setElementOrder/env": [{"name": one} for one in r.sample("EFGZ",
            4)]},
            {"ports": [{"containerPort": r.choice([80, 53, 90]), **r.choice([
                {"name": "p"}, {"$patch": "delete"}, {"protocol": "UDP"}, {"protocol": "TCP", "$patch": "delete"}])}]},
            {"$setElementOrder/ports": [{"containerPort": 53}, {"containerPort": 80}], "ports": [
                {"containerPort": 80, "hostPort": 8080}]},
            {"volumeMounts": [{"mountPath": r.choice(["/a", "/b", "/c"]), "name": "v", **r.choice([
                {"readOnly": True}, {"$patch": "delete"}])}]},
            {"$deleteFromPrimitiveList/args": ["x"]}, {"args": ["x", "y"]}, {"command": ["$patch"]},
        ])  # fmt: skip
        return {"containers": [{"name": r.choice("abc"), **member}]}

    # -- JSON patches that test first ---------------------------------------------------------------------------------

    def _tests(self) -> Request:
        r, path = self.dice, f"{self._core}/configmaps/tested"
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tested", "annotations": {"a/b": "1"}},
                "data": {"k": "v", "n~m": "x", "a": "1"}}  # fmt: skip
        if (first := self._first(self._tests, f"{self._core}/configmaps", body)) is not None:
            return first
        places = ["/data/k", "/data/n~0m", "/metadata/annotations/a~1b", "/data/none", "/data", "", "/", "/data/",
                  "/metadata/name", "/data/n~m", "data/k", "/immutable", "/data/k/x", "/metadata/finalizers/0",
                  "/metadata/finalizers/-", "/metadata/finalizers"]  # fmt: skip
        values = ["v", "w", None, {}, [], 1, True, "x.y/z", ["x.y/z"], {"k": "v"}, "1"]
        steps = []
        for _ in range(r.choice([1, 1, 2, 3])):
            op = r.choice(["test", "test", "add", "replace", "remove", "move", "copy"])
            step: Obj = {"op": op, "path": r.choice(places)}
            step |= {"from": r.choice(places)} if op in ("move", "copy") else {}
            step |= {"value": r.choice(values)} if op in ("test", "add", "replace") and r.random() < 0.95 else {}
            steps.append(step)
        return self._ask("PATCH", path, steps, "json")

    # -- pods ---------------------------------------------------------------------------------------------------------

    def _resources(self) -> Obj:
        r = self.dice
        made: Obj = {}
        for kind in r.sample(["requests", "limits"], r.choice([1, 2, 2])):
            names = r.sample(["cpu", "memory", "cpu", "memory", "ephemeral-storage", "x.y/z"], r.choice([1, 1, 2]))
            made[kind] = {name: r.choice(_AMOUNTS if r.random() < 0.2 else ["1", "2"] if name == "cpu" else
                                         ["1Gi", "2Gi"]) for name in names}  # fmt: skip
        return made

    def _resize(self) -> Request:
        """A pod whose containers want more, or less."""
        r, path = self.dice, f"{self._core}/pods/resized"
        both = {"cpu": "1", "memory": "1Gi"}
        container = {"name": "a", "image": "i", "resources": {"requests": both, "limits": both}}
        policy = [{"resourceName": "cpu", "restartPolicy": r.choice(["NotRequired", "RestartContainer"])}]
        spec: Obj = {"containers": [container | r.choice([{}, {"resizePolicy": policy}]), {"name": "b", "image": "i"}]}
        spec["initContainers"] = [{"name": "i", "image": "i"}, {"name": "s", "image": "i", "restartPolicy": "Always"}]
        spec |= r.choice([{}, {}, {"resources": {"requests": both}}, {"os": {"name": "windows"}}])
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "resized"}, "spec": spec}
        if (first := self._first(self._resize, f"{self._core}/pods", body)) is not None:
            return first
        patch: Obj = {"containers": [{"name": r.choice("aab"), "resources": self._resources()}]}
        patch = r.choice([patch, patch, patch, patch, {"resources": self._resources()}, {"initContainers": [
            {"name": r.choice("is"), "resources": self._resources()}]}, {"containers": [{"name": "a", "image": "j"}]},
            {"containers": [{"name": "a", "resizePolicy": policy}]}, {"nodeName": "n1"}, {"containers": [{
                "name": "z", "image": "i"}]}, {"containers": [{"name": "a", "resources": None}]}])  # fmt: skip
        if r.random() < 0.15:
            status = {"phase": r.choice(["Running", "Failed", "Pending"]), "conditions": [{
                "type": r.choice(["PodResizePending", "PodResizeInProgress"]), "status": "True"}]}  # fmt: skip
            return self._ask("PATCH", f"{path}/status", {"status": status}, "strategic")
        under = r.choice(["/resize", "/resize", "/resize", ""])
        if r.random() < 0.2:
            named = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "resized"}}
            query = f"fieldManager={r.choice(['m1', 'm2'])}{r.choice(['', '&force=true'])}"
            return self._ask("PATCH", path + under, {**named, "spec": patch}, "apply", query)
        return self._ask("PATCH", path + under, {"spec": patch}, "strategic")

    def _debug(self) -> Request:
        """A pod in which somebody looks, by ephemeral containers."""
        r, path = self.dice, f"{self._core}/pods/debugged"
        spec = {"containers": [{"name": "a", "image": "i"}], "volumes": [{"name": "v", "emptyDir": {}}]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "debugged"}, "spec": spec}
        if (first := self._first(self._debug, f"{self._core}/pods", body)) is not None:
            return first
        container: Obj = {"name": r.choice(["d1", "d2", "d3", "a", "A_"]), "image": r.choice(["i", "i", "", "j"])}
        for more in ({"targetContainerName": r.choice(["a", "x"])}, {"stdin": True, "tty": True}, {"ports": [
            {"containerPort": 80}]}, {"resources": {"limits": {"cpu": "1"}}}, {"volumeMounts": [
                {"name": "v", "mountPath": "/v", **r.choice([{}, {"subPath": "s"}])}]}, {"livenessProbe": {"exec": {
                    "command": ["x"]}}}, {"securityContext": {"runAsUser": r.choice([5, -1])}},
                    {"restartPolicy": "Always"},
            {"lifecycle": {"preStop": {"exec": {"command": ["x"]}}}}, {"env": [{"name": "E", "value": "1"}]},
            {"terminationMessagePolicy": "x"}, {"imagePullPolicy": "Never"}):  # fmt: skip
            container |= more if r.random() < 0.12 else {}
        form = r.choice(["strategic", "strategic", "merge", "apply", "json"])
        if r.random() < 0.2:
            change: Any = {"spec": {"ephemeralContainers": r.choice([[], None, [{"name": "d1", "$patch": "delete"}]])}}
            return self._ask("PATCH", f"{path}/ephemeralcontainers", change, "strategic")
        under = r.choice(["/ephemeralcontainers"] * 6 + [""])
        query = ""
        change = {"spec": {"ephemeralContainers": [container]}}
        if form == "json":
            change = [{"op": "add", "path": "/spec/ephemeralContainers/-", "value": container}]
        elif form == "apply":
            change |= {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "debugged"}}
            query = "fieldManager=m1"
        return self._ask("PATCH", path + under, change, form, query)

    def _ends(self) -> Request:
        """A pod on a node that is deleted, in more and less of a hurry, and changed meanwhile."""
        r, path = self.dice, f"{self._core}/pods/ends"
        metadata = {"name": "ends", **r.choice([{}, {"finalizers": ["x.y/z"]}])}
        spec = {"containers": [{"name": "a", "image": "i"}], **r.choice([{"nodeName": "n1"}] * 4 + [{}]),
                **r.choice([{}, {"terminationGracePeriodSeconds": r.choice([0, 1, 60, -1])}])}  # fmt: skip
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        if (first := self._first(self._ends, f"{self._core}/pods", body)) is not None:
            return first
        choice = r.random()
        if choice < 0.4:
            query = r.choice(["", "gracePeriodSeconds=5", "gracePeriodSeconds=100", "gracePeriodSeconds=1", *[
                "propagationPolicy=Foreground", "propagationPolicy=Orphan"], "gracePeriodSeconds=-5", *[
                    "gracePeriodSeconds=0"], "gracePeriodSeconds=x", "gracePeriodSeconds=99999"])  # fmt: skip
            options = r.choice([None, None, {}, {"gracePeriodSeconds": r.choice([3, 0, None])}, {
                "preconditions": {"uid": mark("uid", path)}}])  # fmt: skip
            return self._ask("DELETE", path, options, query=query)
        if choice < 0.55:
            return self._ask("POST", f"{self._core}/pods", body)
        if choice < 0.75:
            status = r.choice([{"phase": "Running"}, {"phase": "Succeeded"}, {"phase": "Failed", "reason": "r"}, {
                "conditions": [_CONDITION]}, {"containerStatuses": [{"name": "a", "ready": True, "restartCount": 1,
                    "image": "i", "imageID": "d", "state": {"running": {}}}]}, {"podIPs": [{"ip": "10.0.0.5"}]},
                    {"phase": "Pending"}])  # fmt: skip
            return self._ask("PATCH", f"{path}/status", {"status": status}, self._form())
        change: Obj = r.choice([
            {"metadata": {"finalizers": r.choice([None, ["x.y/z"], ["x.y/w"], []])}},
            {"metadata": {"labels": {"a": "b"}}},
            {"metadata": {"deletionGracePeriodSeconds": r.choice([1, 0, None])}}, {"metadata": {"deletionTimestamp":
                r.choice([None, "2026-01-02T03:04:05Z"])}}, {"spec": {"activeDeadlineSeconds": r.choice([5, 3, 9, 0])}},
            {"spec": {"terminationGracePeriodSeconds": 1}},
            {"spec": {"tolerations": [{"operator": "Exists"}]}}])  # fmt: skip
        return self._ask("PATCH", path, change, "merge")

    # -- services -----------------------------------------------------------------------------------------------------

    def _network(self) -> Request:
        """A Service that becomes one of another type, with other ports and addresses."""
        r, path = self.dice, f"{self._core}/services/changing"
        body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "changing"}, "spec": {
            "selector": {"a": "b"}, "ports": [{"name": "p", "port": 80}]}}  # fmt: skip
        if (first := self._first(self._network, f"{self._core}/services", body)) is not None:
            return first
        port = {"name": r.choice("pq"), "port": r.choice([80, 443, 0, 65536]), **r.choice([{}, {}, {
            "targetPort": r.choice([8080, "http", "A_b", 0])}, {"protocol": r.choice(["UDP", "SCTP", "x"])}, {
                "appProtocol": r.choice(["http", "a b", "kubernetes.io/h2c"])}])}  # fmt: skip
        spec = r.choice([
            *({"type": one} for one in ("NodePort", "LoadBalancer", "ClusterIP", "ClusterIP")),
            {"type": "ExternalName", "externalName": r.choice(["a.b", "A_", "", "a.b."])}, {"type": "ExternalName",
                "externalName": "e.io", "clusterIP": None, "clusterIPs": None, "ports": None},
            {"type": "ClusterIP", "externalName": None}, {"ports": [port]}, {"ports": [port]}, {"ports": [
                port, {"name": "r", "port": 81}]}, {"clusterIP": r.choice(["None", "", "10.0.0.5", "x"])},
            {"ipFamilyPolicy": r.choice(["PreferDualStack", "RequireDualStack", "SingleStack", None, "x"])},
            {"ipFamilies": r.choice([["IPv4"], ["IPv6"], ["IPv4", "IPv6"], ["IPv4", "IPv4"], []])},
            {"externalTrafficPolicy": r.choice(["Local", "Cluster", "x", None])}, {"internalTrafficPolicy": r.choice([
                "Local", "Cluster", "x", None])}, {"sessionAffinity": r.choice(["ClientIP", "None", "x"])},
            {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": r.choice([
                1, 0, 86401])}}}, {"loadBalancerClass": r.choice(["x.y/z", "x", None, "x.y/w"])}, {
                    "allocateLoadBalancerNodePorts": r.choice([True, False, None])}, {"healthCheckNodePort": r.choice([
                        0, 30999, -1])}, {"loadBalancerSourceRanges": r.choice([["10.0.0.0/8"], ["x"],
                        [" 10.0.0.0/8"]])},
            {"trafficDistribution": r.choice(["PreferClose", "PreferSameNode", "PreferSameZone", "x", None])},
            {"externalIPs": r.choice([["1.2.3.4"], ["127.0.0.1"], ["x"]])}, {"publishNotReadyAddresses": True},
            {"selector": r.choice([None, {}, {"a b": "c"}])}, {"loadBalancerIP": "1.2.3.4"},
            {"type": "LoadBalancer", "externalTrafficPolicy": "Local"}])  # fmt: skip
        if r.random() < 0.12:
            ingress = r.choice([{"ip": "1.2.3.4"}, {"ip": "x"}, {"hostname": "a.b"}, {"ip": "1.2.3.4",
                "ipMode": r.choice([
                "VIP", "Proxy", "x"])}, {"hostname": "a_b"}, {"ipMode": "VIP"}])  # fmt: skip
            status = {"loadBalancer": {"ingress": [ingress]}}
            return self._ask("PATCH", f"{path}/status", {"status": status}, self._form())
        return self._ask("PATCH", path, {"spec": spec}, self._form())

    # -- workloads, volumes -------------------------------------------------------------------------------------------

    def _volume(self) -> Request:
        """A claim of a volume that grows and is bound."""
        r, path = self.dice, f"{self._core}/persistentvolumeclaims/grows"
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "s",
            "resources": {"requests": {"storage": "1Gi"}},
        }
        body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "grows"}, "spec": spec}
        if (first := self._first(self._volume, f"{self._core}/persistentvolumeclaims", body)) is not None:
            return first
        change: Obj = r.choice([
            {"resources": {"requests": {"storage": r.choice(["2Gi", "512Mi", "x", "-1", "0"])}}}, {"volumeName": "pv"},
            {"resources": {"limits": {"storage": "5Gi"}}}, {"storageClassName": r.choice(["t", None, ""])},
            {"volumeAttributesClassName": r.choice(["vac", "", None, "A_"])}, {"accessModes": ["ReadWriteMany"]},
            {"volumeMode": "Block"}, {"dataSource": {"kind": "x", "name": "y"}},
            {"selector": {"matchLabels": {"a": "b"}}}])  # fmt: skip
        status: Obj = r.choice([
            {"phase": r.choice(["Bound", "Pending", "Lost", "x"])}, {"capacity": {"storage": r.choice(["1Gi", "2Gi"])}},
            {"allocatedResources": {"storage": "2Gi"}}, {"allocatedResourceStatuses": {"storage": r.choice([
                "ControllerResizeInProgress", "NodeResizePending", "x", "y/z"])}}, {"accessModes": ["ReadWriteOnce"]},
            {"conditions": [{"type": r.choice(["Resizing", "x"]), "status": "True"}]},
            {"currentVolumeAttributesClassName": "vac"}, {"modifyVolumeStatus": {"status": r.choice(["Pending",
            "x"])}}])  # fmt: skip
        if r.random() < 0.45:
            return self._ask("PATCH", f"{path}/status", {"status": status}, self._form())
        return self._ask("PATCH", path, {"spec": change}, self._form())

    def _job(self) -> Request:
        """A Job that is suspended, resumed, widened, and told of its end."""
        r, path = self.dice, f"/apis/batch/v1/namespaces/{self._namespace}/jobs/works"
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "i"}]}}
        spec: Obj = {"suspend": True, "completions": 3, "parallelism": 2, "template": template}
        spec |= r.choice([{}, {"completionMode": "Indexed"}, {"completionMode": "Indexed", "backoffLimitPerIndex": 1}, {
            "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In",
            "values": [1]}}]}}])  # fmt: skip
        body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "works"}, "spec": spec}
        if (first := self._first(self._job, path.removesuffix("/works"), body)) is not None:
            return first
        within = r.choice([
            {"nodeSelector": {"a": r.choice("bc")}}, {"tolerations": [{"operator": "Exists"}]}, {"schedulingGates": [
                {"name": "g"}]}, {"containers": [{"name": "a", "image": "j"}]}, {"containers": [{"name": "a",
                "resources": {
                    "requests": {"cpu": r.choice("12")}}}]}, {"affinity": {"nodeAffinity": {}}},
                    {"priority": 5}])  # fmt: skip
        change: Obj = r.choice([
            {"suspend": r.choice([True, False])}, {"suspend": False}, {"parallelism": r.choice([0, 5, -1])}, {
                "completions": r.choice([3, 4, 5, None])}, {"parallelism": 4, "completions": 4}, {"backoffLimit": 2},
            {"activeDeadlineSeconds": r.choice([5, 0])}, {"ttlSecondsAfterFinished": 1}, {"manualSelector": True},
            {"template": {"metadata": {"labels": {"l": "m"}, "annotations": {"k": "v"}}}},
            {"managedBy": r.choice(["x.y/z", "x"])},
            {"podReplacementPolicy": r.choice(["Failed", "TerminatingOrFailed"])}, {"maxFailedIndexes": 1}, {
                "successPolicy": {"rules": [{"succeededCount": 1}]}}, {"template": {"spec": within}}, {"template": {
                    "spec": within}}, {"template": {"spec": within}}])  # fmt: skip
        now = "2026-01-02T03:04:05Z"
        status: Obj = r.choice([
            {"startTime": r.choice([now, None, "2026-01-03T03:04:05Z"])}, {"active": r.choice([1, -1, 9])},
            {"ready": 1},
            {"succeeded": r.choice([1, 3])}, {"completedIndexes": r.choice(["0", "0-2", "x", "2,1"])}, {"failed": 1},
            {"conditions": [{"type": r.choice(["Complete", "Failed", "SuccessCriteriaMet", "FailureTarget",
            "Suspended"]),
                             "status": r.choice(["True", "True", "False"])} for _ in range(r.choice([1, 2]))]},
            {"completionTime": now, "startTime": now, "conditions": [{"type": "SuccessCriteriaMet", "status": "True"}, {
                "type": "Complete", "status": "True"}]}, {"terminating": 1},
                {"uncountedTerminatedPods": {"succeeded": ["u"]}},
            {"startTime": now}])  # fmt: skip
        if r.random() < 0.35:
            return self._ask("PATCH", f"{path}/status", {"status": status}, self._form())
        return self._ask("PATCH", path, {"spec": change}, self._form())

    def _set(self) -> Request:
        """A StatefulSet or DaemonSet, of which little may change."""
        r, path = self.dice, f"{self._apps}/statefulsets/set"
        claim = {"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {
            "storage": "1Gi"}}}}  # fmt: skip
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "i"}]}}
        spec = {"serviceName": "s", "selector": {"matchLabels": {"a": "b"}}, "template": template,
                "volumeClaimTemplates": [claim]}  # fmt: skip
        body = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "set"}, "spec": spec}
        if (first := self._first(self._set, f"{self._apps}/statefulsets", body)) is not None:
            return first
        change: Obj = r.choice([
            {"replicas": r.choice([0, 2, -1])}, {"serviceName": "t"}, {"podManagementPolicy": "Parallel"}, {
                "updateStrategy": r.choice([{"type": "OnDelete", "rollingUpdate": None}, {"rollingUpdate": {"partition":
                    r.choice([1, -1])}}, {"rollingUpdate": {"maxUnavailable": r.choice([1, "50%", 0, "x"])}}])},
            {"ordinals": {"start": r.choice([1, -1])}}, {"persistentVolumeClaimRetentionPolicy": {"whenDeleted":
                r.choice(["Delete", "Retain", "x"])}}, {"minReadySeconds": r.choice([1, -1])}, {"revisionHistoryLimit":
                    r.choice([1, -1])}, {"selector": {"matchLabels": {"c": "d"}}},
                        {"template": {"spec": {"restartPolicy":
                        "Never"}}}, {"template": {"metadata": {"labels": {"a": "c"}}}},
                            {"volumeClaimTemplates": []}])  # fmt: skip
        status: Obj = r.choice([
            {"replicas": r.choice([1, -1])}, {"readyReplicas": 5, "replicas": 1}, {"currentRevision": "x"}, {
                "collisionCount": -1}, {"observedGeneration": r.choice([1, -1])},
                {"availableReplicas": 2}])  # fmt: skip
        if r.random() < 0.3:
            return self._ask("PATCH", f"{path}/status", {"status": status}, self._form())
        return self._ask("PATCH", path, {"spec": change}, self._form())

    def _autoscaler(self) -> Request:
        """An autoscaler in both versions."""
        r, root = self.dice, f"namespaces/{self._namespace}/horizontalpodautoscalers"
        metric = {"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization",
                                                                               "averageUtilization": 50}}}  # fmt: skip
        spec = {"maxReplicas": 3, "metrics": [metric], "scaleTargetRef": {"kind": "Deployment", "name": "d",
            "apiVersion":
            "apps/v1"}, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 5}}}  # fmt: skip
        body = {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "hpa"},
            "spec": spec,
        }
        if (first := self._first(self._autoscaler, f"/apis/autoscaling/v2/{root}", body)) is not None:
            return first
        change: Obj = r.choice([
            {"minReplicas": r.choice([0, 1, 5])}, {"maxReplicas": r.choice([0, 4])}, {"metrics": r.choice([[], None,
            [metric] * 2, [
                {"type": "External", "external": {"metric": {"name": "m"}, "target": {"type": "Value",
                "value": "1"}}}], [
                    {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "a", "target": {
                        "type": "AverageValue", "averageValue": "1"}}}], [{"type": "x"}], [{"type": "Pods"}]])},
            {"targetCPUUtilizationPercentage": r.choice([50, 0, None])}, {"behavior": r.choice([None, {"scaleUp": {
                "policies": [{"type": "Pods", "value": r.choice([1, 0]), "periodSeconds": r.choice([15, 0, 9999])}]}}, {
                    "scaleDown": {"selectPolicy": r.choice(["Disabled", "x"])}},
                    {"scaleUp": {"tolerance": "0.1"}}])}])  # fmt: skip
        version = r.choice(["v1", "v2"])
        return self._ask("PATCH", f"/apis/autoscaling/{version}/{root}/hpa", {"spec": change}, "merge")

    def _event(self) -> Request:
        """An event in both groups."""
        r, root = self.dice, f"namespaces/{self._namespace}/events"
        about = {"kind": "Pod", "namespace": self._namespace, "name": "p", "apiVersion": "v1"}
        old = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "involvedObject": about, "reason": "R",
               "message": "m", "type": "Normal", "source": {"component": "c"}, "count": 1}  # fmt: skip
        new = {"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "f"}, "regarding": about,
            "reason":
               "R", "action": "A", "note": "n", "type": "Normal", "eventTime": "2026-01-02T03:04:05.000000Z",
               "reportingController": "x.y/z", "reportingInstance": "i"}  # fmt: skip
        paths = (f"/api/v1/{root}", f"/apis/events.k8s.io/v1/{root}")
        choice = r.random()
        if choice < 0.4:
            path, body = r.choice([(paths[0], old), (paths[1], new)])
            for key in r.sample(sorted(body), r.choice([0, 0, 1])):
                body = {one: value for one, value in body.items() if one != key or key in ("kind", "metadata")}
            body |= r.choice([{}, {}, {"type": "x"}, {"note": "n" * 1025}, {"series": {"count": r.choice([1, 2]),
                "lastObservedTime": "2026-01-02T03:04:05.000000Z"}}, {"metadata": {"generateName": "g-"}},
                {"action": "a" * 129}])  # fmt: skip
            return self._ask("POST", path, body)
        path = f"{r.choice(paths)}/{r.choice('ef')}"
        change = r.choice([
            {"count": 2}, {"series": {"count": r.choice([2, 3, 1, 0]),
            "lastObservedTime": "2026-01-02T03:04:06.000000Z"}},
            {"message": "o"}, {"note": "o"}, {"reason": "S"}, {"metadata": {"labels": {"a": "b"}}}, {"eventTime": None},
            {"related": {"kind": "Node", "name": "n"}}, {"reportingController": "c"},
            {"involvedObject": {"name": "q"}}])  # fmt: skip
        return self._ask("PATCH", path, change, self._form())

    # -- lists, watches -----------------------------------------------------------------------------------------------

    def _token(self) -> Request:
        """A page by a token that no server gave."""
        r, path = self.dice, f"{self._core}/{self.dice.choice(['configmaps', 'pods', 'services'])}"
        token = {"v": r.choice(["meta.k8s.io/v1"] * 4 + ["x", None]), "rv": r.choice([-1, 0, "x", None, -2]),
            "start": r.choice([
            "none\0", "../x", "a", "", "/x", f"{self._namespace}/x\0"])}  # fmt: skip
        text = json.dumps({key: value for key, value in token.items() if value is not None})
        raw = base64.urlsafe_b64encode(text.encode()).decode()
        query = ["limit=2", "continue=" + r.choice([raw.rstrip("="), raw, raw[:-3], "e30", mark("continue", path)])]
        query.append(r.choice(["", "", "resourceVersion=0", "resourceVersion=5", "resourceVersionMatch=Exact", *[
            "resourceVersion=5&resourceVersionMatch=NotOlderThan", "watch=1"]]))  # fmt: skip
        return Request("GET", path, "&".join(filter(None, query)), {}, None, "client/page")

    def _watch(self) -> Request:
        """A watch, or a list, of a version of some age."""
        r, path = self.dice, f"{self._core}/{self.dice.choice(['configmaps', 'pods', 'services'])}"
        name = r.choice(["tested", "resized", "changing", "ends"])
        query = [r.choice(["watch=1&timeoutSeconds=1", "watch=true&timeoutSeconds=1", ""]), r.choice([
            "", "resourceVersion=0", f"resourceVersion={mark('resourceVersion', path + '/' + name)}", *[
                f"resourceVersion={mark('old', path + '/' + name)}", "resourceVersion=-1", "resourceVersion=x"]]),
                r.choice([
                    "", "", "resourceVersionMatch=NotOlderThan", "resourceVersionMatch=Exact",
                    "sendInitialEvents=true", *[
                        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"]]),
                        r.choice([
                            "", "", f"fieldSelector=metadata.name%3D{name}", "labelSelector=none",
                            "timeoutSeconds=1"])]  # fmt: skip
        headers = r.choice([{}, {}, {"Accept": TABLE}, {"Accept": PARTIAL}])
        if not query[0]:
            headers = {}
        return Request("GET", path, "&".join(filter(None, query)), headers, None, "client/watch")

    def _fields(self) -> Request:
        """Objects by their fields, with what must be escaped."""
        r = self.dice
        core, apps = (
            ["configmaps", "pods", "secrets", "services", "events", "replicationcontrollers"],
            ["replicasets", "deployments"],
        )
        batch = f"/apis/batch/v1/namespaces/{self._namespace}/jobs"
        path = r.choice([*(f"{self._core}/{one}" for one in core), *(f"{self._apps}/{one}" for one in apps), batch])
        keys = ["metadata.name", "metadata.namespace", "spec.nodeName", "spec.restartPolicy", "spec.schedulerName",
            "status.phase",
                "spec.serviceAccountName", "spec.hostNetwork", "status.podIP", "status.podIPs",
                "status.nominatedNodeName", "type",
                "spec.clusterIP", "spec.type", "involvedObject.kind", "involvedObject.uid", "reason",
                "reportingComponent", "source",
                "regarding.name", "status.replicas", "status.successful", "metadata.uid", "metadata.labels.a",
                "involvedObject.fieldPath"]  # fmt: skip
        values = ["tested", "", "n1", "Never", "Running", "true", "0", "Opaque", "a\\,b", "a\\=b", "a\\", "a=b", "R",
            "Pod", "ClusterIP",
                  "default-scheduler", "None", " ", "c"]  # fmt: skip
        terms = [r.choice(keys) + r.choice(["=", "==", "!="]) + r.choice(values) for _ in range(r.choice([1, 1, 2]))]
        text = r.choice([",", ", ", ",,"]).join(terms)
        return Request(
            "GET", path, f"fieldSelector={quote(text)}", r.choice([{}, {"Accept": TABLE}]), None, "client/fields"
        )

    def _encoded(self) -> Request:
        """Paths as proxies and careless clients write them."""
        r, core = self.dice, self._core
        path = r.choice([
            f"{core}/configmaps/a%2Fb", f"{core}/configmaps/%74ested", f"{core}//configmaps",
            f"{core}/configmaps//tested",
            f"/api/v1//namespaces/{self._namespace}/configmaps", f"{core}/configmaps/tested/",
            f"{core}/configmaps/./tested",
            f"{core}/configmaps/../configmaps/tested", f"{core}/configmaps/%C3%BC", f"{core}/configmaps/a%20b",
            f"{core}/configmaps/a;b", f"{core}/configmaps/tested%2Fstatus",
            f"/API/v1/namespaces/{self._namespace}/configmaps", f"{core}/ConfigMaps",
            f"{core}/configmaps/tested/status/x",
            f"/api/v1/namespaces/{self._namespace}%2Fconfigmaps", f"{core}/pods/resized/log/x",
            f"/api/v1/configmaps/{self._namespace}",
            f"{core}/", f"/api//v1/namespaces/{self._namespace}"])  # fmt: skip
        method = r.choice(["GET", "GET", "GET", "DELETE", "PUT", "PATCH", "POST", "HEAD"])
        if method in ("GET", "HEAD"):
            return Request(method, path, "", r.choice([{}, {}, {"Accept-Encoding": "gzip"}]), None, "client/path")
        headers = _CHANGES["merge"] if method == "PATCH" else _JSON
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tested"}}
        return Request(method, path, "dryRun=All", headers, None if method == "DELETE" else body, "client/path")

    # -- users --------------------------------------------------------------------------------------------------------

    def _somebody(self) -> Request:
        """Who asks, in somebody's name with all that this may have."""
        r = self.dice
        headers = dict(_JSON)
        for name, values in (
            ("Impersonate-User", ["u", "system:serviceaccount:a:b", "system:serviceaccount:a", "system:anonymous",
            "system:node:n"]),
            ("Impersonate-Group", ["g", "system:masters", "", "system:authenticated", "system:unauthenticated"]),
            ("Impersonate-Uid", ["1", ""]), ("Impersonate-Extra-Scopes", ["a", ""]),
            ("Impersonate-Extra-A%2fB", ["c"]), ("Impersonate-Extra-%zz", ["d"]), ("Impersonate-Extra-", ["e"]),
        ):  # fmt: skip
            if r.random() < (1 if name.endswith("User") else 0.35):
                headers[name] = r.choice(values)
            elif name == "Impersonate-Group":
                headers[name] = ""
        version = r.choice(["v1", "v1", "v1", "v1beta1"])
        body = {"apiVersion": f"authentication.k8s.io/{version}", "kind": "SelfSubjectReview"}
        path = f"/apis/authentication.k8s.io/{version}/selfsubjectreviews"
        return Request("POST", path, r.choice(["", "", "dryRun=All", "pretty=1"]), headers, body, "client/review")
