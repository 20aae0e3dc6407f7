"""Situations of nodes and devices: what kubelets may do, and how many devices claims of a namespace may ask for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from request_parts import PATCHES, Request, mark
from request_situations import CONTAINER, JSON, MERGE, Situations, pod_of

Obj = dict[str, Any]
_STRATEGIC = {"Content-Type": PATCHES["strategic"]}
_DEVICES = "gpu.deviceclass.resource.k8s.io/devices"


class NodeSituations(Situations):
    """Those of one seed, with the others."""

    def situations(self) -> dict[Callable[[], Request], int]:
        """What there is, and how often."""
        return {**super().situations(), self._node: 8, self._claimed: 4}

    # -- what a node may do -------------------------------------------------------------------------------------------

    def _node_first(self) -> list[Request]:
        pods, data = f"{self.root}/pods", {"a": "Yg=="}
        mounted: Obj = {"volumes": [{"name": "s", "secret": {"secretName": "node-s"}}], "nodeName": self.mine}
        claimed: Obj = {"resourceClaims": [{"name": "c", "resourceClaimName": "node-c"}], "nodeName": self.mine}
        claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "node-c"}, "spec": {
            "devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "g"}}]}}}  # fmt: skip
        secrets = [
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"node-{one}"}, "data": data} for one in "st"
        ]
        return [
            self.post("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.mine}}),
            *(self.post(f"{self.root}/secrets", one) for one in secrets),
            self.post(f"/apis/resource.k8s.io/v1/namespaces/{self.namespace}/resourceclaims", claim),
            self.post(pods, pod_of("mounts", **mounted)), self.post(pods, pod_of("claims", **claimed)),
            self.post(pods, pod_of("elsewhere", nodeName="n1")),
        ]  # fmt: skip

    def _node(self) -> Request:
        """What a kubelet asks for, of its own node and of others."""
        made = self._of_node()
        who = {"Impersonate-User": f"system:node:{self.mine}", "Impersonate-Group": "system:nodes"}
        return replace(made, headers={**made.headers, **who}, resource="situation/node")

    def _of_node(self) -> Request:
        r = self.dice
        other = r.choice([self.mine, self.mine, self.mine, "n1"])
        pod = f"{self.root}/pods/{r.choice(['mounts', 'claims', 'elsewhere', 'none'])}"
        reads, writes = self._reads(other, pod), self._writes(other)
        return r.choice([*reads, *writes, *self._of_pods(other, pod), *self._of_slices(other)])

    def _reads(self, node: str, pod: str) -> list[Request]:
        r, root = self.dice, self.root
        claims = f"/apis/resource.k8s.io/v1/namespaces/{self.namespace}/resourceclaims"
        of_node = f"fieldSelector={quote('spec.nodeName=' + node)}"
        return [
            Request("GET", f"{root}/secrets/node-{r.choice('stx')}"), Request("GET", f"{root}/secrets"),
            Request("GET", f"{root}/secrets", f"fieldSelector={quote('metadata.name=node-s')}"),
            Request("GET", f"{claims}/{r.choice(['node-c', 'none'])}"), Request("GET", claims), Request("GET", pod),
            Request("GET", f"{root}/pods", of_node), Request("GET", "/api/v1/pods", f"{of_node}&labelSelector=none"),
            Request("GET", f"{root}/pods"), Request("GET", f"/api/v1/nodes/{node}"),
            Request("GET", "/api/v1/nodes", f"fieldSelector={quote('metadata.name=' + self.mine)}"),
            Request("GET", f"/apis/storage.k8s.io/v1/csinodes/{node}"),
        ]  # fmt: skip

    def _of_pods(self, node: str, pod: str) -> list[Request]:
        """Static pods, and what is written about pods."""
        r, root, name = self.dice, self.root, pod.rpartition("/")[2]
        mirror = {"kubernetes.io/config.mirror": "m"}
        uid = mark("uid", f"/api/v1/nodes/{node}")
        owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": True}
        owners: Obj = r.choice([{}, {"ownerReferences": [owner]}, {"ownerReferences": [owner]}])
        metadata = {"annotations": r.choice([mirror, mirror, {}]), **owners}
        static = pod_of(self.fresh("mirror"), metadata, nodeName=node)
        bound = {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": mark("uid", pod)}
        whom: Obj = r.choice([{}, {}, {"audiences": [""]}, {"audiences": ["x"]}, {"audiences": ["x", "y"]}])
        bindings: list[Obj] = [{"boundObjectRef": bound}, {"boundObjectRef": {**bound, "uid": "x"}}]
        token = {"spec": r.choice([{}, *bindings, bindings[0]]) | whom}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        labels = {"metadata": {"labels": {"x": "y"}}}
        phase = {"status": {"phase": r.choice(["Running", "Failed"])}}
        return [
            Request("POST", f"{root}/pods", r.choice(["", "dryRun=All"]), JSON, static),
            Request("DELETE", pod, r.choice(["dryRun=All", "gracePeriodSeconds=0&dryRun=All"])),
            Request("PATCH", f"{pod}/status", "", _STRATEGIC, phase), Request("PATCH", pod, "", _STRATEGIC, labels),
            Request("PATCH", f"{pod}/status", "", _STRATEGIC, labels),
            Request("POST", f"{root}/serviceaccounts/default/token", "", JSON, token),
            Request("POST", f"{pod}/eviction", "dryRun=All", JSON, eviction),
        ]  # fmt: skip

    def _of_slices(self, node: str) -> list[Request]:
        r, slices, mine = self.dice, "/apis/resource.k8s.io/v1/resourceslices", f"{self.mine}-slice"
        spec = {"driver": "x.y", "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}}
        spec |= r.choice([{"nodeName": node}, {"nodeName": node}, {"allNodes": True}])
        made = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": mine}, "spec": spec}
        of_node = f"fieldSelector={quote('spec.nodeName=' + node)}"
        return [
            Request("POST", slices, r.choice(["", "dryRun=All"]), JSON, made), Request("GET", slices, of_node),
            Request("GET", slices, f"fieldSelector={quote('metadata.name=' + mine)}"),
            Request("DELETE", slices, of_node), Request("DELETE", f"{slices}/{mine}"),
            Request("PATCH", f"{slices}/{mine}", "", MERGE, {"spec": {"pool": {"generation": r.choice([1, 2])}}}),
        ]  # fmt: skip

    def _writes(self, node: str) -> list[Request]:
        """What is written about nodes and their leases."""
        r, path = self.dice, f"/api/v1/nodes/{node}"
        labels = r.choice([{"a": "b"}, {"kubernetes.io/os": "linux"}, {"node-restriction.kubernetes.io/a": "b"},
                           {"node.kubernetes.io/instance-type": "x"}, {"kubernetes.io/other": "x"}])  # fmt: skip
        spec: Obj = r.choice([{"unschedulable": True}, {"taints": [{"key": "k", "effect": "NoSchedule"}]}])
        changed: Obj = r.choice([{"metadata": {"labels": labels}}, {"spec": spec}])
        ready = [{"type": "Ready", "status": "True"}]
        status = {"status": r.choice([{"capacity": {"cpu": "4"}}, {"conditions": ready}])}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": node}, "spec": {}}
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        return [
            Request("PATCH", path, "", _STRATEGIC, changed), Request("PATCH", f"{path}/status", "", _STRATEGIC, status),
            Request("PATCH", f"{path}/status", "", _STRATEGIC, changed), Request("DELETE", path, "dryRun=All"),
            Request("POST", leases, "dryRun=All", JSON, lease),
        ]  # fmt: skip

    # -- devices that a namespace may have ----------------------------------------------------------------------------

    def _claimed_first(self) -> list[Request]:
        r, path = self.dice, f"{self.root}/resourcequotas"
        hard = {
            "gpu.deviceclass.resource.k8s.io/devices": r.choice(["2", "3", "0"]),
            "count/resourceclaims.resource.k8s.io": "3",
        }
        hard |= r.choice([{}, {"requests.x.y/gpu": "2"}, {"requests.deviceclass.resource.kubernetes.io/gpu": "2"}])
        hard = dict(r.sample(sorted(hard.items()), r.choice([1, 2])))
        status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
        body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "devices"}, "spec": {"hard": hard}}
        return [
            self.post(path, body),
            Request("PATCH", f"{path}/devices/status", "", MERGE, {"status": status}, "resourcequotas"),
        ]

    def _claimed(self) -> Request:
        r = self.dice
        asked: Obj = {"deviceClassName": r.choice(["gpu", "gpu", "g"]), **r.choice([
            {}, {"count": 2}, {"count": 1}, {"allocationMode": "All"}, {"adminAccess": True}])}  # fmt: skip
        classes = [{"deviceClassName": r.choice(["gpu", "g"]), "count": r.choice([1, 2])} for _ in "ab"]
        either = [{"name": name, **one} for name, one in zip("ab", classes, strict=True)]
        requests: list[Obj] = [{"name": "r", "exactly": asked}, {"name": "f", "firstAvailable": either}]
        spec = {"devices": {"requests": r.sample(requests, r.choice([1, 1, 2]))}}
        claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": self.fresh("c")}}
        path = f"/apis/resource.k8s.io/v1/namespaces/{self.namespace}/resourceclaims"
        if r.random() < 0.25:
            limits = {"resources": {"limits": {"x.y/gpu": r.choice("12")}}}
            return self.post(f"{self.root}/pods", {**pod_of(self.fresh("card")), "spec": {
                "containers": [{**CONTAINER, **limits}]}})  # fmt: skip
        return self.post(path, {**claim, "spec": spec}, r.choice(["", "", "dryRun=All"]))
