"""Three API servers of two versions as processes on one etcd, and a client that reads and writes every group."""

from __future__ import annotations

import http.client
import json
import random
import signal
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from etcd_process import Etcd
from haru.apiserver.auth import certificates
from haru.files import write_whole
from haru_process import Api, Process, free_port, path_for

Obj = dict[str, Any]
TOKEN = "the-token-of-the-administrator"
GIVE_UP_SECONDS = 120.0
LOST = (OSError, http.client.HTTPException, json.JSONDecodeError)
GATES = {
    "1.35": "UnknownVersionInteroperabilityProxy=true,DRADeviceTaints=true,DRADeviceTaintRules=true,"
    "ClusterTrustBundle=true",
    "1.36": "GenericWorkload=true,DRADeviceTaintRules=true,ClusterTrustBundle=true",
}
NOT_SERVED = "the server could not find the requested resource"


class Upgrade:
    """Servers at addresses that stay, each of a version that may change with a restart."""

    def __init__(self, home: Path, etcd: Etcd, versions: dict[str, str]) -> None:
        self.home, self.etcd, self.versions = home, etcd, versions
        now = datetime.now(UTC)
        serving, front = (certificates.new_authority(now, name) for name in ("serving", "front-proxy"))
        server = certificates.server_pair(serving, (), now)
        client = certificates.client_pair(front, "apiserver-proxy", (), now)
        contents = {"tls.crt": server.certificate, "tls.key": server.key, "sa.key": certificates.new_key()}
        contents |= {"proxy.crt": client.certificate, "proxy.key": client.key}
        contents |= {"serving-ca.crt": serving.certificate, "front-ca.crt": front.certificate}
        contents["tokens.csv"] = f'{TOKEN},admin,1,"system:masters"\n'.encode()
        for name, content in contents.items():
            write_whole(home / name, content)
        self.ports = {name: free_port() for name in versions}
        for name, port in self.ports.items():
            config = certificates.kubeconfig(f"https://127.0.0.1:{port}", serving.certificate, TOKEN)
            write_whole(home / f"{name}.kubeconfig", config)
        self.processes: dict[str, Process] = {}

    def start(self, name: str, *, wait: bool = True) -> None:
        """Start a server (again) in its version, and wait until it is ready."""
        version = self.versions[name]
        flags = ["--etcd-servers", self.etcd.url, "--etcd-prefix", "/upgrade", "--bind-address", "127.0.0.1"]
        flags += ["--secure-port", str(self.ports[name]), "--tls-cert-file", "tls.crt"]
        flags += ["--tls-private-key-file", "tls.key", "--token-auth-file", "tokens.csv"]
        flags += ["--service-account-signing-key-file", "sa.key", "--etcd-compaction-interval", "0s"]
        flags += ["--emulated-version", version, "--feature-gates", GATES[version], "--runtime-config", "api/all=true"]
        flags += ["--hostname-override", name, "--peer-ca-file", "serving-ca.crt"]
        flags += ["--proxy-client-cert-file", "proxy.crt", "--proxy-client-key-file", "proxy.key"]
        flags += ["--requestheader-client-ca-file", "front-ca.crt", "--requestheader-allowed-names", "apiserver-proxy"]
        self.processes[name] = Process(self.home, ["apiserver", *flags], f"apiserver-{name}")
        if wait:
            self.wait(name)

    def wait(self, name: str) -> None:
        line = self.processes[name].line(GIVE_UP_SECONDS)
        assert line.startswith("haru apiserver is ready after "), line

    def restart(self, name: str, number: int = signal.SIGTERM, version: str = "") -> None:
        """End a server, orderly or not, and start it again, in another version if one is given."""
        status = self.processes.pop(name).stop(number)
        assert number == signal.SIGKILL or status == 0, self.log(name)[-3000:]
        self.versions[name] = version or self.versions[name]
        self.start(name)

    def log(self, name: str) -> str:
        return (self.home / f"apiserver-{name}.log").read_text()

    def stop(self) -> None:
        for name in list(self.processes):
            assert self.processes.pop(name).stop() == 0, self.log(name)[-3000:]

    def api(self, name: str) -> Api:
        return Api(self.home / f"{name}.kubeconfig")

    def apis(self) -> dict[str, Api]:
        return {name: self.api(name) for name in self.ports}


class Everything(threading.Thread):
    """Makes, reads, changes and removes an object of every group, each step at another server, over and over."""

    def __init__(self, apis: dict[str, Api], objects: list[Obj], seed: int) -> None:
        super().__init__(name="a client of everything", daemon=True)
        self._apis = apis
        self._objects, self._random, self._ended = objects, random.Random(seed), threading.Event()
        self.rounds = 0
        self.codes: Counter[int] = Counter()
        self.retries = 0
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._ended.is_set():
                for obj in self._objects:
                    self._one(obj, self.rounds)
                self.rounds += 1
        except BaseException as error:
            self.problem = error
        finally:
            for api in self._apis.values():
                api.close()

    def end(self) -> None:
        """Finish the round; raises what went wrong in any."""
        self._ended.set()
        self.join(GIVE_UP_SECONDS)
        assert not self.is_alive()
        if self.problem is not None:
            raise self.problem

    def _one(self, obj: Obj, number: int) -> None:
        name = f"{obj['metadata']['name']}-{number}"
        obj = {**obj, "metadata": {**obj["metadata"], "name": name}}
        at = f"{path_for(obj)}/{name}"
        code, found, lost = self.call("POST", path_for(obj), obj)
        assert code == 201 or (lost and code == 409), (code, at, found)
        # What one has acknowledged each shows.
        for server in self._apis:
            code, found, _ = self.call("GET", at, first=server)
            assert code == 200 and found["metadata"]["name"] == name, (code, at, server)
        code, found, lost = self.call("PATCH", at, {"metadata": {"labels": {"round": str(number)}}})
        assert code == 200, (code, at, found)
        code, found, _ = self.call("GET", f"{path_for(obj)}?labelSelector=round%3D{number}")
        assert code == 200 and name in [item["metadata"]["name"] for item in found["items"]], (code, at)
        code, _, lost = self.call("PATCH", at, {"metadata": {"finalizers": None}})
        assert code == 200, (code, at)
        code, _, lost = self.call("DELETE", at)
        assert code in (200, 202) or (lost and code == 404), (code, at)

    def call(self, method: str, path: str, body: Any = None, first: str = "") -> tuple[int, Any, bool]:
        """As client-go does: again, at another server, while the answer is that nobody knows."""
        order = sorted(self._apis, key=lambda _: self._random.random())
        order = [first, *(name for name in order if name != first)] if first else order
        deadline, lost, turn = time.monotonic() + GIVE_UP_SECONDS, False, 0
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        while True:
            name = order[turn % len(order)]
            try:
                code, answer = self._apis[name].call(method, path, body, kind)
                self.codes[code] += 1
                # The whole point: nobody may take what a peer serves for something that is not there.
                missing = code == 404 and isinstance(answer, dict) and answer.get("message") == NOT_SERVED
                assert not missing, f"{method} {path} at {name}: {answer}"
                if code < 500:
                    return code, answer, lost
                problem: object = answer
            except LOST as error:
                problem = error
                self._apis[name].close()
            assert time.monotonic() < deadline, f"{method} {path}: {problem}"
            lost, turn, self.retries = True, turn + 1, self.retries + 1
            time.sleep(0.02)


def _named(api_version: str, kind: str, name: str, **rest: Any) -> Obj:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **rest}


_POD = {"containers": [{"name": "main", "image": "example.com/work:1"}]}
_TEMPLATE = {"metadata": {"labels": {"app": "x"}}, "spec": _POD}
_SELECTED = {"selector": {"matchLabels": {"app": "x"}}, "template": _TEMPLATE}
_EXPRESSION = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}
_RULE = {"apiGroups": ["nobody.example"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["things"]}
_MUTATION = {
    "matchConstraints": {"resourceRules": [_RULE]},
    "mutations": [_EXPRESSION],
    "reinvocationPolicy": "Never",
    "failurePolicy": "Ignore",
}
OBJECTS: list[Obj] = [
    _named("v1", "ConfigMap", "core", data={"a": "b"}),
    _named("apps/v1", "Deployment", "apps", spec=_SELECTED),
    _named("batch/v1", "Job", "batch", spec={"template": {"spec": {**_POD, "restartPolicy": "Never"}}}),
    _named("policy/v1", "PodDisruptionBudget", "policy", spec={"minAvailable": 1}),
    _named("rbac.authorization.k8s.io/v1", "Role", "rbac", rules=[]),
    _named("storage.k8s.io/v1", "StorageClass", "storage", provisioner="nobody.example/none"),
    _named("networking.k8s.io/v1", "NetworkPolicy", "networking", spec={"podSelector": {}}),
    _named("scheduling.k8s.io/v1", "PriorityClass", "scheduling", value=1),
    _named("scheduling.k8s.io/v1alpha2", "PodGroup", "gang", spec={"schedulingPolicy": {"gang": {"minCount": 1}}}),
    _named("resource.k8s.io/v1", "DeviceClass", "resource", spec={}),
    _named(
        "resource.k8s.io/v1beta2",
        "DeviceTaintRule",
        "taints",
        spec={"deviceSelector": {"driver": "a.b"}, "taint": {"key": "a.b/c", "effect": "None"}},
    ),
    _named("coordination.k8s.io/v1", "Lease", "coordination", spec={"holderIdentity": "x"}),
    _named("node.k8s.io/v1", "RuntimeClass", "node", handler="x"),
    _named("discovery.k8s.io/v1", "EndpointSlice", "discovery", addressType="IPv4", endpoints=[]),
    _named(
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        "autoscaling",
        spec={"scaleTargetRef": {"kind": "Deployment", "name": "x", "apiVersion": "apps/v1"}, "maxReplicas": 2},
    ),
    _named("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "admission", webhooks=[]),
    _named("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy", "mutation", spec=_MUTATION),
    _named(
        "flowcontrol.apiserver.k8s.io/v1",
        "FlowSchema",
        "flowcontrol",
        spec={"priorityLevelConfiguration": {"name": "exempt"}, "matchingPrecedence": 1000},
    ),
    _named("certificates.k8s.io/v1beta1", "ClusterTrustBundle", "certificates", spec={"trustBundle": "BUNDLE"}),
]
