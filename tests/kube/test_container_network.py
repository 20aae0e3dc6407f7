"""Containers that ask the network: Services, their endpoints and their names decide, at the moment of each attempt."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from haru.kube.indexed_objects import ListedObjects
from haru.kube.names import format_time
from haru.kube.simulated_containers.cluster_network import (
    ClusterNetwork,
    NetworkMemory,
    asks_network,
    pod_network,
    reachable_namespaces,
)
from haru.kube.simulated_containers.commands import run_in_container
from haru.kube.simulated_containers.container_scripts import Script, script_of
from haru.kube.simulated_containers.files import PodSources

Obj = dict[str, Any]
BEGAN = datetime(2026, 11, 28, 10, tzinfo=UTC)


def at(seconds: float) -> str:
    """So many seconds after the start of the container."""
    return format_time(BEGAN + timedelta(seconds=seconds))


def service(name: str, created: float = -60, namespace: str = "n", **spec: Any) -> Obj:
    meta = {"name": name, "namespace": namespace, "creationTimestamp": at(created)}
    return {"metadata": meta, "spec": {"clusterIP": "10.96.0.7", "ports": [{"port": 80}], **spec}}


def backend(name: str, ready: float = -30, ports: Iterable[int] = (8080,), address: str = "10.0.0.9") -> Obj:
    declared = [{"containerPort": port} for port in ports]
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": at(ready)}
    status = {"podIP": address, "conditions": [condition], "containerStatuses": [_running(ready)]}
    meta = {"name": name, "namespace": "n", "creationTimestamp": at(-60)}
    return {"metadata": meta, "spec": {"containers": [{"name": "c", "ports": declared}]}, "status": status}


def _running(began: float) -> Obj:
    return {"name": "c", "state": {"running": {"startedAt": at(began)}}}


def slice_of(of: str, *pods: str, port: int = 8080, ready: bool = True, **endpoint: Any) -> Obj:
    endpoints = [
        {"addresses": ["10.0.0.9"], "conditions": {"ready": ready}, "targetRef": {"name": pod}, **endpoint}
        for pod in pods
    ]
    labels = {"kubernetes.io/service-name": of}
    meta = {"name": f"{of}-x", "namespace": "n", "creationTimestamp": at(-60), "labels": labels}
    return {"metadata": meta, "ports": [{"name": "", "port": port}], "endpoints": endpoints}


def cluster(*services: Obj, pods: Iterable[Obj] = (), slices: Iterable[Obj] = ()) -> ClusterNetwork:
    return ClusterNetwork(ListedObjects(services), ListedObjects(pods), ListedObjects(slices))


WEB = cluster(service("web"), pods=[backend("web-0")], slices=[slice_of("web", "web-0")])
EMPTY = cluster()


def ran(
    network: ClusterNetwork, text: str, memory: NetworkMemory | None = None, now: float = 0.0, **spec: Any
) -> Script:
    """What a container does that runs this text."""
    container = {"name": "c", "command": ["sh", "-c", text]}
    status = {"containerStatuses": [_running(0)], "podIP": "10.0.0.1"}
    pod = {"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": [container], **spec}, "status": status}
    seen = pod_network(network, pod, BEGAN + timedelta(seconds=now), memory)
    return script_of(pod, container, PodSources(network=seen)) or Script(understood=False)


def ends(network: ClusterNetwork, text: str) -> tuple[int, list[str]]:
    """Code and output of a text that ends."""
    found = ran(network, text)
    assert found.ends_after is not None
    return found.exit_code, [line for _, line in found.lines]


@pytest.mark.parametrize(
    "host",
    ["web", "web.n", "web.n.svc", "web.n.svc.cluster.local", "web.n.svc.cluster.local.", "WEB"],
)
def test_service_resolves_by_each_of_its_names(host: str) -> None:
    code, lines = ends(WEB, f"nslookup {host}")
    assert code == 0
    assert lines[:2] == ["Server:\t\t10.96.0.10", "Address:\t10.96.0.10:53"]
    assert lines[3:5] == ["Name:\tweb.n.svc.cluster.local", "Address: 10.96.0.7"]


@pytest.mark.parametrize("host", ["db", "web.default", "web.other.svc", "x.web.n.svc.cluster.local"])
def test_service_that_does_not_exist_does_not_resolve(host: str) -> None:
    code, lines = ends(WEB, f"nslookup {host} 2>/dev/null")
    assert code == 1
    assert "** server can't find" in lines[3]
    assert ends(WEB, f"nslookup {host} >/dev/null 2>&1; exit $?") == (1, [])


@pytest.mark.parametrize("host", ["example.com", "registry.npmjs.org", "localhost", "p", "10.0.0.1", "1.1.1.1", "ext"])
def test_of_hosts_outside_and_of_the_pod_itself_nothing_is_known(host: str) -> None:
    outside = cluster(service("ext", clusterIP=None, type="ExternalName", externalName="example.com"))
    assert not ran(outside, f"wget http://{host}/; exit 1").understood


@pytest.mark.parametrize(
    ("command", "code", "lines"),
    [
        ("wget -qO- http://web", 0, []),
        ("wget --spider -q web:80/healthz", 0, []),
        (
            "wget web:80",
            0,
            ["Connecting to web:80 (10.96.0.7:80)", "saving to 'index.html'", "'index.html' saved"],
        ),
        ("wget -q -T 5 -O- http://db:80", 1, ["wget: bad address 'db:80'"]),
        ("wget -qO- web:81", 1, ["wget: can't connect to remote host (10.96.0.7): Connection refused"]),
        ("wget -O /tmp/x web -q && cat /tmp/x && wc -c /tmp/x", 0, ["0 /tmp/x"]),
        ("curl -sf http://web/healthz", 0, []),
        ("curl -s -o /dev/null -w '%{http_code}' http://web", 0, ["200"]),
        ("curl -s http://web:81", 7, []),
        ("curl http://db", 6, ["curl: (6) Could not resolve host: db"]),
        ("curl -sS web:81", 7, [
            "curl: (7) Failed to connect to web port 81 after 0 ms: Could not connect to server"
        ]),
        ('[ "$(curl -s -o /dev/null -w \'%{http_code}\' http://web)" = 200 ] && echo yes', 0, ["yes"]),
        ("nc -z web 80", 0, []),
        ("nc -zv -w 2 web 80", 0, ["web (10.96.0.7:80) open"]),
        ("nc -zv web 81", 1, ["nc: web (10.96.0.7:81): Connection refused"]),
        ("nc -z db 80", 1, ["nc: bad address 'db'"]),
        ("timeout 3 nc -z web 80", 0, []),
        ("nc -z 10.96.0.7 80", 0, []),
        ("nc -z 10.0.0.9 8080", 0, []),
        ("nc -z 10.0.0.9 8081", 1, []),
        ("getent hosts web", 0, ["10.96.0.7       web"]),
        ("getent hosts db", 2, []),
        ("pg_isready -h web -p 80 -U me", 0, ["web:80 - accepting connections"]),
        ("pg_isready -h db", 2, ["db:5432 - no response"]),
        ("mysqladmin ping -h web -P 80", 0, ["mysqld is alive"]),
        ("redis-cli -h web -p 80 ping", 0, ["PONG"]),
        ("redis-cli -h db ping", 1, ["Could not connect to Redis at db:6379: Name or service not known"]),
    ],
)  # fmt: skip
def test_programs_tell_what_a_real_one_would(command: str, code: int, lines: list[str]) -> None:
    assert ends(WEB, command) == (code, lines)


def test_service_answers_only_with_a_ready_endpoint_whose_pod_declares_the_port() -> None:
    web, pod = service("web"), backend("web-0")
    for network, code in (
        (cluster(web), 7),
        (cluster(web, pods=[pod], slices=[slice_of("web", "web-0", ready=False)]), 7),
        (cluster(web, pods=[pod], slices=[slice_of("web", "web-0", port=9)]), 7),
        (cluster(web, pods=[backend("web-0", ports=())], slices=[slice_of("web", "web-0", port=9)]), 0),
        (cluster(web, slices=[slice_of("web", "elsewhere")]), 0),
    ):
        assert ends(network, "curl -s web")[0] == code


def test_headless_service_leads_to_its_endpoints_by_their_names() -> None:
    db = service("db", clusterIP="None")
    network = cluster(db, pods=[backend("db-0", ports=(5432,))], slices=[slice_of("db", "db-0", hostname="db-0")])
    assert ends(network, "nc -zv db-0.db 5432") == (0, ["db-0.db (10.0.0.9:5432) open"])
    assert ends(network, "nc -z db-0.db.n.svc.cluster.local 5432")[0] == 0
    assert ends(network, "nc -z db 5432")[0] == 0
    assert ends(network, "nc -z db 80")[0] == 1
    assert ends(network, "nc -z db-1.db 5432")[0] == 1
    assert ends(cluster(db), "nslookup db")[0] == 1


@pytest.mark.parametrize(
    ("spec", "is_known"),
    [
        ({"hostNetwork": True}, False),
        ({"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}, True),
        ({"dnsPolicy": "Default"}, False),
        ({"hostAliases": [{"ip": "1.2.3.4", "hostnames": ["web"]}]}, False),
        ({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.1.1.1"]}}, False),
    ],
)
def test_name_that_the_cluster_is_not_asked_for_is_not_known(spec: Obj, is_known: bool) -> None:
    assert ran(WEB, "nslookup web; exit 3", **spec).understood == is_known
    assert ran(WEB, "nc -z 10.96.0.7 80; exit 3", **spec).exit_code == 3


def test_loop_waits_until_the_service_exists_and_prints_in_each_turn_before() -> None:
    text = "until nslookup web >/dev/null 2>&1; do echo waiting for web; sleep 2; done; echo found; exit 3"
    late = ran(cluster(service("web", created=7)), text)
    assert late.ends_after == pytest.approx(8.05)
    assert [line for _, line in late.lines] == ["waiting for web"] * 4 + ["found"]
    assert (late.exit_code, late.understood) == (3, True)
    never = ran(EMPTY, text)
    assert (never.ends_after, never.understood) == (None, True)
    assert [line for _, line in never.printed(7)] == ["waiting for web"] * 4
    assert len(never.printed(20_000, 19_990)) == 5


def test_loop_that_waits_for_long_is_not_gone_through_turn_by_turn() -> None:
    found = ran(cluster(service("web", created=1_000_000)), "until nslookup web; do date; sleep 1; done")
    assert found.ends_after == pytest.approx(1_000_000, abs=2)
    assert found.lines[-1][0] == found.ends_after
    assert len(found.lines) < 20_000


@pytest.mark.parametrize(
    "text",
    [
        "while ! nc -z web 80; do sleep 1; done",
        "until $(curl --output /dev/null --silent --head --fail http://web); do printf '.'; sleep 1; done",
        "until [ $(curl -s -o /dev/null -w '%{http_code}' http://web) -eq 200 ]; do sleep 1; done",
        "while true; do if nc -z web 80; then break; fi; sleep 1; done",
        "while true; do nc -z web 80 && exit 0; sleep 1; done",
        "while true; do nc -z web 80 && break; sleep 1; done; echo up",
        "for i in $(seq 1 60); do nc -z web 80 && break; sleep 1; done",
        "for i in $(seq 60)\ndo\n  if curl -f http://web 2>/dev/null\n  then\n    exit\n  fi\n  sleep 1\ndone\nexit 1",
        "i=0; until pg_isready -h web -p 80; do i=$((i+1)); if [ $i -gt 90 ]; then exit 1; fi; sleep 1; done",
        "set -e; until wget -q \\\n  -O- web; do sleep 1; done",
        "curl --retry 20 --retry-delay 1 --retry-connrefused -s http://web",
    ],
)
def test_usual_ways_to_wait_for_a_port_end_when_it_answers(text: str) -> None:
    ready = cluster(service("web"), pods=[backend("web-0", ready=10)], slices=[slice_of("web", "web-0")])
    found = ran(ready, text)
    assert found.ends_after is not None
    assert 10 <= found.ends_after < 12
    assert found.exit_code == 0


def test_bounded_wait_ends_without_success() -> None:
    assert ends(EMPTY, "for i in 1 2 3; do nc -z db 1 && exit 0; sleep 5; done 2>/dev/null; exit 9") == (9, [
        "nc: bad address 'db'"] * 3)  # fmt: skip


def test_loop_for_ever_goes_on_with_what_the_network_answers() -> None:
    ready = cluster(service("web"), pods=[backend("web-0", ready=10)], slices=[slice_of("web", "web-0")])
    found = ran(ready, "while true; do curl -s http://web && echo ok || echo down; sleep 5; done")
    lines = [line for _, line in found.printed(25)]
    assert lines == ["down", "down", "ok", "ok", "ok"]


def test_what_was_seen_before_stays_so_when_the_objects_go() -> None:
    memory = NetworkMemory()
    text = "wget -qO- web || exit 5; sleep 600"
    assert ran(WEB, text, memory).ends_after == pytest.approx(600.01)
    assert ran(EMPTY, text, memory, now=60).ends_after == pytest.approx(600.01)
    assert ran(EMPTY, text, NetworkMemory(), now=60).exit_code == 5


def test_what_was_not_so_when_it_was_looked_at_begins_only_then() -> None:
    memory = NetworkMemory()
    text = "until nc -z web 80; do sleep 1; done"
    assert ran(cluster(service("web")), text, memory, now=0).ends_after is None
    assert ran(cluster(service("web")), text, memory, now=50).ends_after is None
    # An older pod is labelled so that the Service selects it.
    found = ran(WEB, text, memory, now=51)
    assert found.ends_after == pytest.approx(50.5, abs=1)


def test_command_in_a_container_asks_the_network_as_it_is() -> None:
    container = {"name": "c", "image": "x"}
    pod = {"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": [container]}}
    sources = PodSources(network=pod_network(WEB, pod, BEGAN))
    answer = run_in_container(pod, container, ["curl", "-I", "http://web"], sources)
    assert [line.text for line in answer.lines] == ["HTTP/1.1 200 OK", ""]
    unknown = run_in_container(pod, container, ["curl", "http://web"], replace(sources, network=None))
    assert unknown.exit_code == 127


def test_pod_asks_the_network_if_a_command_has_such_a_program() -> None:
    def pod(*words: str) -> Obj:
        return {"metadata": {"namespace": "n"}, "spec": {"initContainers": [{"name": "i", "command": [*words]}]}}

    assert asks_network(pod("sh", "-c", "until nslookup db; do sleep 1; done"))
    assert asks_network(pod("/usr/bin/wget", "db"))
    assert not asks_network(pod("sh", "-c", "echo sync nc.example func wgetter"))
    assert reachable_namespaces(pod("wget", "db.prod"), ["prod", "test"]) == {"n", "prod"}


def test_memory_of_a_name_that_comes_and_goes_is_bounded() -> None:
    memory = NetworkMemory()
    for turn in range(1000):
        memory.note("q", float(turn) if turn % 2 else None, float(turn))
    assert len(memory.stretches["q"]) <= 100
    assert memory.stretches["q"][-1] == (999.0, math.inf)


PARTS = (
    "nc -z web 80", "nslookup web", "curl -s http://late", "wget -qO- http://db", "! ", "until ", "while ", "; do ",
    "; done", "; ", "if ", "; then ", "; fi", "; else ", " && ", " || ", "sleep 1", "echo $i", "i=$((i+1))", "break",
    "[ $i -lt 5 ]", "exit 3", " > /tmp/x", " < /tmp/x", " 2>/dev/null", " >/dev/null 2>&1", "cat <<E\nx $i\nE\n",
    "for i in 1 2 3", "for f in /tmp/*", " | while read x", "$(date)", "$RANDOM", "true", "false", "\n",
    "$(curl -s web)", "set -e; ", "| grep a", "tail -f /tmp/x", "'", '"', "timeout 2 nc -z late 80",
)  # fmt: skip


def test_any_text_is_understood_or_not_but_is_no_error() -> None:
    chosen = random.Random(0)
    slices = [slice_of("web", "web-0"), slice_of("late", "web-0")]
    network = cluster(service("web"), service("late", created=500), pods=[backend("web-0", ready=20)], slices=slices)
    for _ in range(1500):
        text = "".join(chosen.choice(PARTS) + chosen.choice(("", " ", "; ")) for _ in range(chosen.randrange(2, 16)))
        ran(network, text).printed(1000)
