"""What a request takes the API server does not depend on how many objects, namespaces and watchers there are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest
from api_caller import MAPS, PODS, USER, Caller, Clock, Stream, config_map, make_config, pod
from counted_calls import SHORT, SIZES, Steps, assert_all_flat, assert_flat

from haru.apiserver.ip_address_repair import IPAddressRepair
from haru.apiserver.request import http
from haru.apiserver.server import ApiServer
from haru.storage import SqliteStore

Obj = dict[str, Any]
Work = Callable[[], Awaitable[object]]
NAMESPACES = "/api/v1/namespaces"
QUOTA = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "100000", "requests.cpu": "100000"}}}
SERVICES = f"{NAMESPACES}/default/services"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces"
ASKED = {"requests": {"cpu": "1"}}


def service(name: str, **spec: Any) -> Obj:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


def by_node(name: str) -> str:
    return f"fieldSelector=spec.nodeName%3D{name}"


def role(name: str, *verbs: str) -> Obj:
    return {"metadata": {"name": name}, "rules": [{"verbs": ["get", *verbs], "apiGroups": [""], "resources": ["pods"]}]}


def role_binding(name: str) -> Obj:
    subjects = [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "devs"}]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "own"}
    return {"metadata": {"name": name}, "roleRef": reference, "subjects": subjects}


class GrownApi:
    """As many namespaces, each with a role and its binding, config maps, Services, and pods on nodes of their own."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.streams: list[Stream] = []

    async def start(self) -> None:
        self.store = SqliteStore(":memory:")
        self.server = ApiServer(make_config(self.store, Clock()))
        await self.server.start()
        self.call = Caller(self.server, Clock())
        await self.namespace("default")
        for number in range(self.size):
            await self.namespace(f"space-{number}")
            await self.call.create(f"{NAMESPACES}/space-{number}/configmaps", config_map("own"))
            await self.call.create(MAPS, config_map(f"map-{number}", {"app": f"a{number}"}))
            await self.call.create(f"{RBAC}/space-{number}/roles", role("own"))
            await self.call.create(f"{RBAC}/space-{number}/rolebindings", role_binding("own"))
            await self.call.create(
                SERVICES, service(f"service-{number}", type="NodePort" if number % 2 else "ClusterIP")
            )
            await self.pod(f"pod-{number}", nodeName=f"node-{number}")
        await asyncio.sleep(0.1)  # what the server does by itself at its start is over

    async def namespace(self, name: str) -> None:
        answer = await self.call("POST", NAMESPACES, {"metadata": {"name": name}})
        assert answer.status in (201, 409)
        for plural, obj in (("serviceaccounts", {"metadata": {"name": "default"}}), ("resourcequotas", QUOTA)):
            answer = await self.call("POST", f"{NAMESPACES}/{name}/{plural}", obj)
            assert answer.status in (201, 409), answer.body

    async def pod(self, name: str, **spec: Any) -> None:
        await self.call.create(PODS, self.pod_object(name, **spec))

    def pod_object(self, name: str, **spec: Any) -> Obj:
        made = pod(name, **spec)
        made["metadata"]["labels"] = {"app": name}
        made["spec"]["containers"][0]["resources"] = ASKED
        return made

    async def stop(self) -> None:
        for stream in self.streams:
            await stream.close()
        await self.server.stop()

    def sends(self, method: str, path: str, body: Any = None, status: int = 200, **given: str) -> Work:
        """A request that must be answered with this status."""

        async def work() -> None:
            answer = await self.call(method, path, body, **given)
            assert answer.status == status, answer.body

        return work

    async def watch(self, path: str) -> None:
        self.streams.append(await self.call.stream(path))


Case = Callable[[GrownApi], Awaitable[Work]]


async def get(api: GrownApi) -> Work:
    return api.sends("GET", f"{MAPS}/map-1")


async def list_a_page(api: GrownApi) -> Work:
    return api.sends("GET", f"{PODS}?limit=5")


async def list_a_namespace(api: GrownApi) -> Work:
    return api.sends("GET", f"{NAMESPACES}/space-1/configmaps")


async def list_by_name(api: GrownApi) -> Work:
    return api.sends("GET", f"{PODS}?fieldSelector=metadata.name%3Dpod-1")


async def list_by_node(api: GrownApi) -> Work:
    await api.sends("GET", f"/api/v1/pods?{by_node('node-2')}")()  # whoever asks first has them indexed
    return api.sends("GET", f"/api/v1/pods?{by_node('node-1')}")


async def ask_a_simulated_kubelet_for_its_pods(api: GrownApi) -> Work:
    await api.call.create("/api/v1/nodes", {"metadata": {"name": "node-1"}})
    return api.sends("GET", "/api/v1/nodes/node-1/proxy/pods")


async def open_a_watch(api: GrownApi) -> Work:
    return lambda: api.watch(f"{MAPS}?watch=1&resourceVersion={api.store.revision}")


async def create(api: GrownApi) -> Work:
    return api.sends("POST", MAPS, config_map("created"), 201)


async def create_a_service(api: GrownApi) -> Work:
    await api.sends("POST", SERVICES, service("before"), 201)()
    return api.sends("POST", SERVICES, service("created"), 201)


async def create_a_service_after_one_is_deleted(api: GrownApi) -> Work:
    await api.sends("DELETE", f"{SERVICES}/service-2")()
    return api.sends("POST", SERVICES, service("in-its-place"), 201)


async def delete_a_service(api: GrownApi) -> Work:
    return api.sends("DELETE", f"{SERVICES}/service-3")


async def repair_a_lost_address(api: GrownApi) -> Work:
    """The first round looks at all that is there; the next ones at what has changed."""
    repair = IPAddressRepair(api.server.components.loopback)
    await repair.run()
    for _ in range(2):
        made = await api.call.create(SERVICES, {**service(""), "metadata": {"generateName": "lost-"}})
        lost = f"/apis/networking.k8s.io/v1/ipaddresses/{made['spec']['clusterIP']}"
        assert (await api.call("DELETE", lost)).status == 200
        await repair.run()
        assert (await api.call.get(lost))["spec"]["parentRef"]["name"] == made["metadata"]["name"]
        assert (await api.call("DELETE", lost)).status == 200
    return repair.run


async def give_a_service_node_ports(api: GrownApi) -> Work:
    return api.sends(
        "PATCH", f"{SERVICES}/service-4", {"spec": {"type": "NodePort"}}, type="application/merge-patch+json"
    )


async def bind_a_role_and_use_it(api: GrownApi) -> Work:
    await api.call.create(f"{RBAC}/default/roles", role("own"))
    create = api.sends("POST", f"{RBAC}/default/rolebindings", role_binding("more"), 201)
    use = api.sends("GET", f"{PODS}/pod-1", authorization=f"Bearer {USER}")

    async def work() -> None:
        await create()
        await use()

    return work


async def update_a_role(api: GrownApi) -> Work:
    update = api.sends("PUT", f"{RBAC}/default/roles/own", role("own", "list"))
    use = api.sends("GET", f"{PODS}?limit=1", authorization=f"Bearer {USER}")

    async def work() -> None:
        await update()
        await use()

    return work


async def update_a_service(api: GrownApi) -> Work:
    return api.sends(
        "PATCH", f"{SERVICES}/service-1", {"spec": {"ports": [{"port": 81}]}}, type="application/merge-patch+json"
    )


async def create_with_quota(api: GrownApi) -> Work:
    await api.pod("first")
    return api.sends("POST", PODS, api.pod_object("counted"), 201)


async def create_a_namespace(api: GrownApi) -> Work:
    return api.sends("POST", NAMESPACES, {"metadata": {"name": "more"}}, 201)


async def bind(api: GrownApi) -> Work:
    await api.pod("to-bind")
    binding = {"metadata": {"name": "to-bind"}, "target": {"kind": "Node", "name": "node-1"}}
    return api.sends("POST", f"{PODS}/to-bind/binding", binding, 201)


async def evict(api: GrownApi) -> Work:
    return api.sends("POST", f"{PODS}/pod-1/eviction", {"metadata": {"name": "pod-1"}}, 201)


async def update(api: GrownApi) -> Work:
    return api.sends("PUT", f"{MAPS}/map-1", config_map("map-1", a="b"))


async def patch(api: GrownApi) -> Work:
    return api.sends("PATCH", f"{MAPS}/map-1", {"data": {"a": "b"}}, type="application/merge-patch+json")


async def patch_status(api: GrownApi) -> Work:
    change = {"status": {"phase": "Running"}}
    return api.sends("PATCH", f"{PODS}/pod-3/status", change, type="application/merge-patch+json")


async def delete(api: GrownApi) -> Work:
    return api.sends("DELETE", f"{MAPS}/map-2")


async def delete_with_quota(api: GrownApi) -> Work:
    return api.sends("DELETE", f"{PODS}/pod-2?gracePeriodSeconds=0")


async def delete_a_namespace(api: GrownApi) -> Work:
    return api.sends("DELETE", f"{NAMESPACES}/space-3")


async def delete_all_of_a_namespace(api: GrownApi) -> Work:
    return api.sends("DELETE", f"{NAMESPACES}/space-4/configmaps")


async def event_with_watchers_of_other_namespaces(api: GrownApi) -> Work:
    for number in range(api.size):
        await api.watch(f"{NAMESPACES}/space-{number}/configmaps?watch=1&resourceVersion={api.store.revision}")
    await _settle()

    async def work() -> None:
        await api.sends("POST", MAPS, config_map("more"), 201)()
        await _settle()

    return work


async def event_with_watchers_of_other_names(api: GrownApi) -> Work:
    for number in range(api.size):
        selector = f"fieldSelector=metadata.name%3Dmap-{number}"
        await api.watch(f"{MAPS}?watch=1&resourceVersion={api.store.revision}&{selector}")
    await _settle()

    async def work() -> None:
        await api.sends("POST", MAPS, config_map("yet-more"), 201)()
        await _settle()

    return work


async def events_with_watchers_of_other_nodes(api: GrownApi) -> Work:
    """A pod is bound to a node, deleted there, and each node's kubelet watches its own pods."""
    await api.pod("of-one-node")
    for number in range(api.size):
        await api.watch(f"/api/v1/pods?watch=1&resourceVersion={api.store.revision}&{by_node(f'node-{number}')}")
    await _settle()
    binding = {"metadata": {"name": "of-one-node"}, "target": {"kind": "Node", "name": "node-1"}}

    async def work() -> None:
        await api.sends("POST", f"{PODS}/of-one-node/binding", binding, 201)()
        await _settle()
        await api.sends("DELETE", f"{PODS}/of-one-node?gracePeriodSeconds=0")()
        await _settle()

    return work


async def _settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


CASES: dict[str, tuple[Case, ...]] = {
    "get": (get,),
    "list": (list_a_page, list_a_namespace, list_by_name, list_by_node, ask_a_simulated_kubelet_for_its_pods),
    "watch": (
        open_a_watch,
        event_with_watchers_of_other_namespaces,
        event_with_watchers_of_other_names,
        events_with_watchers_of_other_nodes,
    ),
    "create": (
        create,
        create_with_quota,
        create_a_namespace,
        create_a_service,
        create_a_service_after_one_is_deleted,
        bind_a_role_and_use_it,
        bind,
        evict,
    ),
    "update": (update, update_a_role, update_a_service, give_a_service_node_ports),
    "patch": (patch, patch_status),
    "delete": (delete, delete_with_quota, delete_a_namespace, delete_a_service, repair_a_lost_address),
    "deletecollection": (delete_all_of_a_namespace,),
}
"""Requests by the verb that they are in discovery."""


BESIDE_MUCH_THAT_IS_THERE = (
    create_a_service,
    create_a_service_after_one_is_deleted,
    delete_a_service,
    repair_a_lost_address,
    give_a_service_node_ports,
    bind_a_role_and_use_it,
    update_a_role,
)
"""What costs so much in the smallest cluster that twice as much in a larger one would be growth."""


async def test_every_verb_has_a_growth_case() -> None:
    api = GrownApi(0)
    await api.start()
    groups = [f"/apis/{one['name']}" for one in (await api.call.get("/apis"))["groups"]]
    versions = ["/api/v1", *[f"/apis/{v['groupVersion']}" for g in groups for v in (await api.call.get(g))["versions"]]]
    verbs = {verb for path in versions for one in (await api.call.get(path))["resources"] for verb in one["verbs"]}
    await api.stop()
    assert verbs == set(CASES)


async def costs_by_case(size: int) -> dict[str, Steps]:
    """All cases one after the other: each leaves about as many objects as there were."""
    api, costs = GrownApi(size), {}
    await api.start()
    # Ids of requests are made many at once, which would count for whichever case needs the first of them.
    http._ids._ready.extend(str(uuid4()) for _ in range(5_000))
    try:
        for case in (case for cases in CASES.values() for case in cases):
            work = await case(api)
            await asyncio.sleep(0.02)  # watches show what cases before have written
            with Steps() as costs[case.__name__]:
                await work()
    finally:
        await api.stop()
    return costs


@pytest.mark.parametrize("sizes", SIZES)
async def test_request_takes_as_much_in_a_large_cluster_as_in_a_small_one(
    sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    # What the server does by itself every half a minute would count for whichever case it falls into on a busy machine.
    monkeypatch.setattr("haru.apiserver.background.PAUSE_SECONDS", 3600.0)
    costs = {size: await costs_by_case(size) for size in sizes}
    assert_all_flat(costs)
    names = [each.__name__ for each in BESIDE_MUCH_THAT_IS_THERE]
    assert_all_flat({size: {name: costs[size][name] for name in names} for size in sizes}, most=1.15)


POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


def policy(name: str, text: str) -> Obj:
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]
    validations = [{"expression": "object.metadata.name != 'forbidden'", "message": text}]
    spec = {"matchConstraints": {"resourceRules": rules}, "validations": validations}
    return {"metadata": {"name": name}, "spec": spec}


async def cost_of_a_changed_policy(size: int) -> Steps:
    """A policy beside others that are asked about the same writes: its change, and the next write, beyond any write."""
    server = ApiServer(make_config(SqliteStore(":memory:"), Clock()))
    await server.start()
    call = Caller(server, Clock())
    for number in range(size):
        await call.create(POLICIES, policy(f"p{number}", "no"))
        bound = {"policyName": f"p{number}", "validationActions": ["Deny"]}
        await call.create(BINDINGS, {"metadata": {"name": f"p{number}"}, "spec": bound})
    await asyncio.sleep(0.1)
    await call.create(MAPS, config_map("first"))
    with Steps() as usual:
        await call.create(MAPS, config_map("second"))
    with Steps() as changed:
        answer = await call("PATCH", f"{POLICIES}/p1", policy("p1", "No."), type="application/merge-patch+json")
        assert answer.status == 200, answer.body
        await call.create(MAPS, config_map("third"))
    await server.stop()
    changed.count -= usual.count
    for where, count in usual.places.items():
        changed.places[where] = changed.places.get(where, 0) - count
    return changed


async def test_changed_policy_has_no_other_policy_compiled_again() -> None:
    """That the others are as before is looked at, at less cost than any write, which is matched against all of them."""
    costs = {size: await cost_of_a_changed_policy(size) for size in SHORT}
    assert_flat(costs, "a changed policy and the next write", most=1.5)
