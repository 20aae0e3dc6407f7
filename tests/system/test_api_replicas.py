"""Several API servers on one etcd are one: what one acknowledges the other shows, and any of them may be killed."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from replica_world import GIVE_UP_SECONDS, Persistent, Replicas, Resumed

from etcd_process import Etcd
from haru_process import path_of, until

# A server that dies within a TLS handshake leaves a socket that http.client does not close.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
Obj = dict[str, Any]
SEED = int(os.environ.get("HARU_SEED", "0")) or 20261122


@pytest.fixture(scope="module")
def replicas(etcd_binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    home = tmp_path_factory.mktemp("replicas")
    etcd = Etcd(etcd_binary, home)
    etcd.start()
    world = Replicas(home, etcd)
    try:
        world.start("a", wait=False)
        world.start("b")  # both at once: each writes what every cluster starts with
        world.processes["a"].line(GIVE_UP_SECONDS)
        yield world
        world.stop()
    finally:
        for process in world.processes.values():
            process.stop()
        etcd.stop()


def pod(name: str) -> Obj:
    spec = {"containers": [{"name": "main", "image": "example.com/work:1"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def config_map(name: str) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}}


def definition(plural: str) -> Obj:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer"}}}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": plural, "singular": plural[:-1], "kind": plural[:-1].title(), "listKind": f"{plural}List"}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    api_version, kind = "apiextensions.k8s.io/v1", "CustomResourceDefinition"
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": f"{plural}.example.com"}, "spec": spec}


def test_list_includes_writes_acknowledged_by_another_server(replicas: Replicas) -> None:
    apis = [replicas.api("a"), replicas.api("b")]
    for number in range(40):
        writer, reader = apis[number % 2], apis[1 - number % 2]
        made = writer.create(config_map(f"listed-{number}"), "default")
        code, found = reader.call("GET", path_of("configmaps", "default"))
        names = {item["metadata"]["name"] for item in found["items"]}
        assert code == 200 and f"listed-{number}" in names
        assert int(found["metadata"]["resourceVersion"]) >= int(made["metadata"]["resourceVersion"])
        assert reader.get("configmaps", f"listed-{number}", "default") == made


def test_acknowledged_custom_resource_definition_is_served_by_every_server(replicas: Replicas) -> None:
    a, b = replicas.api("a"), replicas.api("b")
    base = "/apis/example.com/v1/namespaces/default"
    for number in range(2):
        plural = f"trains{'xy'[number]}s"
        code, answer = a.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(plural))
        assert code == 201, answer
        kind = answer["spec"]["names"]["kind"]
        one = {"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": "one"}, "spec": {"n": number}}
        code, answer = b.call("POST", f"{base}/{plural}", one)
        assert code == 201, answer
        code, answer = a.call("DELETE", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.example.com")
        assert code == 200, answer

        def gone(plural: str = plural) -> bool:
            return all(api.call("GET", f"{base}/{plural}")[0] == 404 for api in (a, b))

        until("the definition and its objects are gone on both", gone)
    log = "".join((replicas.home / f"apiserver-{name}.log").read_text() for name in "ab")
    assert "could not be removed" not in log and "Traceback" not in log


def test_role_granted_at_one_server_applies_at_another(replicas: Replicas) -> None:
    a, b = replicas.api("a"), replicas.api("b")
    b.token = "user-token"
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    for _ in range(3):
        assert b.call("GET", path_of("pods"))[0] == 403
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:aggregate-to-view"}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "jane"},
            "roleRef": reference,
            "subjects": [subject],
        }
        assert a.call("POST", roles, binding)[0] == 201
        assert b.call("GET", path_of("pods"))[0] == 200
        assert a.call("DELETE", f"{roles}/jane")[0] == 200


def test_token_of_one_server_is_accepted_by_another(replicas: Replicas) -> None:
    a, b = replicas.api("a"), replicas.api("b")
    a.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}, "default")
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    code, answer = a.call("POST", "/api/v1/namespaces/default/serviceaccounts/robot/token", request)
    assert code == 201, answer
    b.token = answer["status"]["token"]
    code, answer = b.call("GET", path_of("pods"))
    assert code == 403 and "system:serviceaccount:default:robot" in answer["message"]


def test_kubernetes_service_lists_all_servers(replicas: Replicas) -> None:
    ports = {int(replicas.api(name).url.rpartition(":")[2]) for name in "ab"}

    def led_to() -> bool:
        _, found = replicas.api("a").call("GET", "/api/v1/namespaces/default/endpoints/kubernetes")
        return {port["port"] for subset in found["subsets"] for port in subset["ports"]} == ports

    until("the endpoints name both", led_to)


class Load(threading.Thread):
    """As a scheduler and a kubelet do: pods created, bound, told to run, deleted; every acknowledgement is noted."""

    def __init__(self, replicas: Replicas, first: str, lane: str) -> None:
        super().__init__(name=f"load {lane}", daemon=True)
        self.client, self._lane = Persistent(replicas, first), lane
        self.acknowledged: dict[str, tuple[int, bool]] = {}
        """Name to the newest revision that an answer carried, and whether the pod is there."""
        self.newest, self.changes = 0, 0
        self.problem: BaseException | None = None
        self._ended = threading.Event()
        self.start()

    def end(self) -> None:
        self._ended.set()
        self.join(GIVE_UP_SECONDS)
        assert not self.is_alive()
        if self.problem is not None:
            raise self.problem

    def run(self) -> None:
        number = 0
        try:
            while not self._ended.is_set():
                self._one(f"{self._lane}-{number}", keep=number % 3 == 0)
                number += 1
        except BaseException as error:
            self.problem = error
        finally:
            self.client.close()

    def _note(self, name: str, obj: Obj, there: bool = True) -> None:
        revision = int(obj["metadata"]["resourceVersion"])
        self.acknowledged[name] = (revision, there)
        self.newest, self.changes = max(self.newest, revision), self.changes + 1

    def _one(self, name: str, *, keep: bool) -> None:
        make, pods = self.client.make, path_of("pods", "default")
        at = f"{pods}/{name}"
        self._note(name, make("POST", pods, pod(name), lambda found: found["kind"] == "Pod", at))
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
        target = {"apiVersion": "v1", "kind": "Node", "name": "node-1"}
        make(
            "POST", f"{at}/binding", {**binding, "target": target}, lambda f: f["spec"].get("nodeName") == "node-1", at
        )
        self.changes += 1
        running = {"status": {"phase": "Running", "hostIP": "10.0.0.1"}}
        self._note(name, make("PATCH", f"{at}/status", running, lambda f: f["status"]["phase"] == "Running", at))
        if keep:
            return
        self.acknowledged.pop(name)  # until the answer it may be either
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        found = make("DELETE", at, options, lambda f: f.get("code") == 404, at)
        if found["kind"] == "Pod":
            self._note(name, found, there=False)
        else:
            self.acknowledged[name] = (0, False)


def check(found: Obj, loads: list[Load], watches: list[Resumed]) -> None:
    """Every acknowledged change is there; the watches saw the same changes, each once, and all of them."""
    stored = {item["metadata"]["name"]: int(item["metadata"]["resourceVersion"]) for item in found["items"]}
    for load in loads:
        for name, (revision, there) in load.acknowledged.items():
            assert (name in stored) == there, f"{name} was acknowledged {'' if there else 'as deleted '}at {revision}"
            assert not there or stored[name] >= revision, f"{name} is older than what was acknowledged"
    for watch in watches:
        revisions = [revision for revision, _, _ in watch.seen]
        assert revisions == sorted(set(revisions)), "a change was seen twice, or out of order"
        told = dict.fromkeys(revisions)
        missing = [n for load in loads for n, (r, there) in load.acknowledged.items() if r and r not in told]
        assert not missing, f"{watch.name} did not see {missing}"
        # What the watch makes of the changes is what the list shows.
        model: dict[str, int] = {}
        for revision, type_, name in watch.seen:
            assert (type_ == "ADDED") == (name not in model), f"{type_} {name} at {revision}"
            if type_ == "DELETED":
                del model[name]
            else:
                model[name] = revision
        assert model == stored
    assert watches[0].seen == watches[1].seen


@pytest.mark.parametrize(
    ("kills", "pause"), [(("a", "etcd"), 0.0), pytest.param((), 10.0, marks=pytest.mark.nightly)], ids=["short", "long"]
)
def test_killed_servers_or_etcd_lose_no_write(replicas: Replicas, kills: tuple[str, ...], pause: float) -> None:
    rng = random.Random(SEED)
    victims = kills or tuple(rng.choice(("a", "b", "a", "b", "etcd")) for _ in range(30))
    a = replicas.api("a")
    since = int(a.call("GET", path_of("pods"))[1]["metadata"]["resourceVersion"])
    watches = [Resumed(replicas, name, since) for name in "ab"]
    loads = [Load(replicas, name, f"{'long' if pause else 'short'}-{name}{lane}") for name in "ab" for lane in "12"]

    def progressed(count: int) -> None:
        wanted = sum(load.changes for load in loads) + count
        until(
            "the work goes on",
            lambda: sum(load.changes for load in loads) >= wanted or any(load.problem for load in loads),
            GIVE_UP_SECONDS,
        )

    try:
        for victim in victims:
            progressed(40)
            time.sleep(pause)
            if victim == "etcd":
                replicas.etcd.kill()
                replicas.etcd.start()
            else:
                replicas.kill(victim)
                progressed(20)  # the other one serves
                replicas.start(victim)
        progressed(40)
    finally:
        problems = []
        for load in loads:
            try:
                load.end()
            except Exception as error:
                problems.append(error)
    assert not problems, problems
    newest = max(load.newest for load in loads)
    for watch in watches:
        watch.finish(newest)
    assert sum(load.client.retries for load in loads) > 0 and all(watch.resumed for watch in watches)
    code, found = replicas.api("b").call("GET", path_of("pods"))
    assert code == 200
    check(found, loads, watches)
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
    assert replicas.api("a").call("DELETE", path_of("pods", "default"), options)[0] == 200


def test_replica_without_etcd_is_alive_but_not_ready(replicas: Replicas) -> None:
    api = replicas.api("b")
    replicas.etcd.kill()
    try:
        until("it is not ready", lambda: api.call("GET", "/readyz")[0] == 500)
        assert api.call("GET", "/livez")[0] == 200
    finally:
        replicas.etcd.start()
    until("it is ready again", lambda: api.call("GET", "/readyz")[0] == 200)
    assert api.call("GET", path_of("pods"))[0] == 200


def test_stopped_server_is_removed_from_endpoints(replicas: Replicas) -> None:
    assert replicas.processes.pop("b").stop() == 0
    try:
        _, found = replicas.api("a").call("GET", "/api/v1/namespaces/default/endpoints/kubernetes")
        own = int(replicas.api("a").url.rpartition(":")[2])
        assert [port["port"] for subset in found["subsets"] for port in subset["ports"]] == [own]
    finally:
        replicas.start("b")
