"""A watched cluster of any size, as the dashboard, the accounting and explanations see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from counted_calls import Steps
from engine_objects import pod
from fake_api import FakeApi
from growing_scheduler import MAKERS, changed, named

from haru.client.api import ApiClient
from haru.client.informer import Informer
from haru.cluster_view import KINDS, ChangeCounter, WatchedObjects
from haru.gangs import ADAPTERS
from haru.gangs import KINDS as FOREIGN
from haru.kube.kinds import known_kind

Obj = dict[str, Any]
LEASE = ("coordination.k8s.io/v1", "Lease")


def event(n: int) -> Obj:
    about = {"kind": "Pod", "name": f"running-{n}", "namespace": "default", "uid": f"uid-running-{n}"}
    return named("v1", "Event", f"event-{n}", "default", involvedObject=about, reason="Told", message="x")


def lease(n: int) -> Obj:
    return named(*LEASE, f"lease-{n}", "kube-system", spec={"holderIdentity": f"{n}"})


def template(n: int) -> Obj:
    return named("resource.k8s.io/v1", "ResourceClaimTemplate", f"template-{n}", "default", spec={"spec": {}})


def workload(n: int) -> Obj:
    return named("scheduling.k8s.io/v1alpha2", "Workload", f"workload-{n}", "default", spec={"podGroupTemplates": []})


def quota(n: int) -> Obj:
    return named("v1", "ResourceQuota", f"quota-{n}", f"namespace-{n}", spec={"hard": {"pods": "10"}})


def daemon_set(n: int) -> Obj:
    status = {"desiredNumberScheduled": 0}
    return named("apps/v1", "DaemonSet", f"daemons-{n}", "default", spec={"template": {"spec": {}}}, status=status)


MORE = {
    "DaemonSet": daemon_set,
    "Event": event,
    "Lease": lease,
    "ResourceClaimTemplate": template,
    "ResourceQuota": quota,
    "Workload": workload,
}


def maker(kind: str) -> Callable[[int], Obj]:
    return MORE[kind] if kind in MORE else MAKERS[kind]


class GrownView:
    """A watched cluster with `size` objects of each kind that the dashboard watches."""

    def __init__(self, size: int) -> None:
        client = ApiClient.in_process(FakeApi())
        self.changes = ChangeCounter()
        self.objects, self.size, self._revision = WatchedObjects(self.changes), size, 0
        self.informers: dict[str, Informer] = {}
        for api_version, kind in KINDS:
            self.informers[kind] = self.objects.informer(client, known_kind(api_version, kind))
        self.objects.use([kind for name in ADAPTERS for kind in FOREIGN if name])
        for kind in self.informers:
            for number in range(size):
                self.hear(kind, "ADDED", maker(kind)(number))
        for number in range(size):
            self.hear("Pod", "ADDED", MAKERS["Pod that has succeeded"](number))
        self.hear("Pod", "ADDED", pod("waits", cpu="1000"))
        self.objects.view()

    def hear(self, kind: str, type_: str, obj: Obj) -> None:
        self._revision += 1
        obj["metadata"]["resourceVersion"] = str(self._revision)
        obj["metadata"].setdefault("uid", f"uid-{kind}-{obj['metadata']['name']}")
        self.informers[kind]._hear(type_, obj)

    def costs(self, kind: str) -> dict[str, Steps]:
        """The second of two: the first may fill a cache."""
        for number in (self.size + 1, self.size + 2):
            obj = maker(kind)(number)
            found: dict[str, Steps] = {}
            for type_, each in (("ADDED", obj), ("MODIFIED", changed(obj)), ("DELETED", changed(obj))):
                with Steps() as found[f"{type_} {kind}"]:
                    self.hear(kind, type_, each)
                    self.objects.view()
        return found
