"""The comparison of kubelets: what does not count, and that its cases can be played."""

from __future__ import annotations

from pathlib import Path

import pytest
from kubectl_answers import QUESTIONS
from kubelet_cases import BOOT, CASES, END_SANDBOX, PAUSE_SERVER, REMOVE_IMAGE, RESTART
from kubelet_told import KNOWN, Known, differing, plain, told
from kubelets_compared import Side, has_cdi
from manifests import Obj
from simulated_compared import is_played

WORDS = (
    *("delete", "patch", "debug", "annotate", "label", "wait", *QUESTIONS),
    *(END_SANDBOX, PAUSE_SERVER, REMOVE_IMAGE),
)
KUBELET, HARU = (Side(name, Path("kubeconfig"), Path(f"/tmp/kc/{name}")) for name in ("kubelet", "haru"))


def status(side: Side, second: int, id_: str, **more: str) -> Obj:
    started = {"startedAt": f"2026-01-01T00:00:0{second}Z"}
    container = {"name": "main", "containerID": f"containerd://{id_}", "state": {"running": started}, **more}
    return {"podIP": f"10.213.0.{second}", "message": f"{side.node}: {side.home}/n/x", "containerStatuses": [container]}


def test_names_times_and_ids_do_not_count() -> None:
    one, other = status(KUBELET, 1, "a" * 64), status(HARU, 2, "b" * 64)
    assert plain(one, KUBELET) == plain(other, HARU)
    assert plain(one, KUBELET)["message"] == "NODE: HOME/n/x"
    assert plain(one, KUBELET) != plain(status(HARU, 1, "b" * 64, ready="true"), HARU)
    assert plain("Internal error occurred: Internal error occurred: x", HARU) == "Internal error occurred: x"
    assert plain("back-off 10s restarting", HARU) == plain("back-off 1m20s restarting", HARU)


def test_what_is_refused_is_told_once_without_the_names_of_the_node() -> None:
    side = Side("haru", Path("kubeconfig"), Path("/tmp/kc/haru"), refusals=["-n haru-1 exec p: no p on haru.node"])
    assert side.refused() == ["-n NAMESPACE exec p: no p on NODE"]
    assert side.refused() == []


def test_runtime_has_cdi_from_its_version_on() -> None:
    old = "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3"
    assert not has_cdi(old)
    assert has_cdi(old.replace("1.6.20", "1.7.1")) and has_cdi("containerd github.com/x v2.1.5 f")


class Recorded(Side):
    """A side whose objects are given."""

    def listed(self, namespace: str, kind: str) -> list[Obj]:
        """One pod and an event about it, twice."""
        if kind == "pods":
            conditions = [{"type": "b"}, {"type": "a"}]
            return [{"metadata": {"name": "p"}, "status": {"conditions": conditions, "resources": {}}}]
        about = {"name": "p", "fieldPath": "spec.containers{main}"}
        return [{"involvedObject": about, "type": "Normal", "reason": "Started", "message": "on haru.node"}] * 2


def test_pod_is_told_with_its_events_once() -> None:
    [lines] = told(Recorded("haru", Path("kubeconfig"), Path("/tmp/kc/haru")), "haru-1")["p"]
    assert [line for line in lines if line.startswith("event")] == [
        "event: Normal Started spec.containers{main}: on NODE"
    ]
    assert lines.index('   "type": "a"') < lines.index('   "type": "b"')


def test_what_a_probe_is_told_at_one_moment_counts_only_where_both_are() -> None:
    refused = (
        "event: Warning Unhealthy spec.containers{main}: Startup probe failed: dial tcp: connect: connection refused"
    )
    assert differing([refused, "a"], ["a"]) == (["a"], ["a"])
    assert differing([refused, "a"], [refused, "b"]) == ([refused, "a"], [refused, "b"])


def test_what_is_known_of_a_pod_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    side = Recorded("haru", Path("kubeconfig"), Path("/tmp/kc/haru"))
    monkeypatch.setitem(KNOWN, "p", Known(("conditions",), lines="event: Normal Started"))
    assert told(side, "haru-1")["p"] == [["{", ' "resources": {}', "}"]]


class Ended(Side):
    """A side whose pod has ended so."""

    end: Obj

    def listed(self, namespace: str, kind: str) -> list[Obj]:
        """The pod, which knows more than its end where that is known."""
        if kind == "events":
            return []
        more = {} if self.end["exitCode"] == 137 else {"user": {}}
        containers = [{"name": "main", "ready": False, "state": {"terminated": self.end}, **more}]
        return [{"metadata": {"name": "e-logs"}, "status": {"phase": "Failed", "containerStatuses": containers}}]


@pytest.mark.parametrize(
    ("of_kubelet", "agrees"),
    [
        ({"exitCode": 137, "reason": "ContainerStatusUnknown"}, True),
        ({"exitCode": 5, "reason": "Error"}, True),
        ({"exitCode": 137, "reason": "Error"}, False),
    ],
)
def test_end_that_a_kubelet_has_forgotten_does_not_count_and_one_that_it_knows_does(
    of_kubelet: Obj, agrees: bool
) -> None:
    heard = []
    for name, end in (("kubelet", of_kubelet), ("haru", {"exitCode": 5, "reason": "Error"})):
        side = Ended(name, Path("kubeconfig"), Path("/tmp/kc"))
        object.__setattr__(side, "end", end)
        heard.append(told(side, f"{name}-1")["e-logs"])
    assert any(one in heard[1] for one in heard[0]) == agrees


def test_cases_for_a_simulated_node_leave_its_machine_alone() -> None:
    assert is_played(CASES["ok-never"]) and is_played(CASES["ask-logs"])
    assert not any(map(is_played, (CASES["boot"], CASES["again-running"], CASES["image-gone"], CASES["sandbox-dies"])))


@pytest.mark.parametrize("name", CASES)
def test_steps_of_case_are_objects_or_words_of_kubectl(name: str) -> None:
    for change in (change for step in CASES[name] for change in step):
        if isinstance(change, dict):
            assert {"apiVersion", "kind", "metadata"} <= change.keys()
        elif change not in (RESTART, BOOT):
            assert change[0] in WORDS
