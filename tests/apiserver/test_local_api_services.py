"""The APIServices that a server keeps for what it serves itself: built in, and custom."""

from __future__ import annotations

from typing import Any

from api_caller import USER, Caller, Clock, make_config
from custom_objects import DEFINITIONS, NAME, definition

from haru.apiserver.aggregation.local import CustomServices
from haru.apiserver.server import ApiServer
from haru.kube.gates import FeatureGates
from haru.storage import SqliteStore
from waiting import until

Obj = dict[str, Any]
SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
MANAGED = "kube-aggregator.kubernetes.io/automanaged"
LOCAL = ("Available", "True", "Local", "Local APIServices are always available")
CUSTOM = f"{SERVICES}/v1.ml.example.com"


async def answered(api: Caller, path: str, status: int) -> Obj:
    """Ask until the answer has that status; what it says."""

    async def is_so() -> bool:
        return (await api("GET", path)).status == status

    await until(is_so)
    found: Obj = (await api("GET", path)).json
    return found


def told(service: Obj) -> list[tuple[str, ...]]:
    conditions = service["status"].get("conditions") or ()
    return [tuple(each[name] for name in ("type", "status", "reason", "message")) for each in conditions]


async def test_every_built_in_group_version_has_an_api_service(api: Caller) -> None:
    listed = {each["metadata"]["name"]: each for each in (await api.get(SERVICES))["items"]}
    served = {(group, version) for group, version in api.app.objects.served.group_versions}
    assert listed.keys() == {f"{v}.{g}" for g, v in served - {("apiregistration.k8s.io", "v1")}}
    for service in listed.values():
        assert service["metadata"]["labels"] == {MANAGED: "onstart"} and told(service) == [LOCAL]
    assert listed["v1."]["spec"] == {"version": "v1", "groupPriorityMinimum": 18000, "versionPriority": 1}
    assert listed["v1.apps"]["spec"]["groupPriorityMinimum"] == 17800


async def test_api_services_of_custom_resources_follow_definitions(api: Caller) -> None:
    await api.create(DEFINITIONS, definition())
    service = await answered(api, CUSTOM, 200)
    assert service["metadata"]["labels"] == {MANAGED: "true"} and told(service) == [LOCAL]
    assert service["spec"] == {
        "group": "ml.example.com",
        "version": "v1",
        "groupPriorityMinimum": 1000,
        "versionPriority": 100,
    }
    # Who deletes or changes one finds it again as it was.
    assert (await api("DELETE", CUSTOM)).status == 200
    again = await answered(api, CUSTOM, 200)
    assert again["metadata"]["uid"] != service["metadata"]["uid"]
    merge = "application/merge-patch+json"
    assert (await api("PATCH", CUSTOM, {"spec": {"versionPriority": 7}}, type=merge)).status == 200

    async def is_restored() -> bool:
        return (await api.get(CUSTOM))["spec"]["versionPriority"] == 100  # type: ignore[no-any-return]

    await until(is_restored)
    assert (await api("DELETE", f"{DEFINITIONS}/{NAME}")).status == 200
    await answered(api, CUSTOM, 404)


async def test_former_remote_api_service_becomes_local(api: Caller) -> None:
    service = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": "v1.far.example"},
        "spec": {
            "group": "far.example",
            "version": "v1",
            "groupPriorityMinimum": 10,
            "versionPriority": 10,
            "service": {"namespace": "default", "name": "far"},
        },
    }
    made = await api.create(SERVICES, service)
    assert made["spec"]["service"]["port"] == 443
    merge = "application/merge-patch+json"
    path = f"{SERVICES}/v1.far.example"
    assert (await api("PATCH", path, {"spec": {"service": None}}, type=merge)).status == 200

    async def is_local() -> bool:
        return LOCAL in told(await api.get(path))

    await until(is_local)


async def test_api_services_require_permission(api: Caller) -> None:
    jane = api.as_(USER)
    assert (await jane("GET", SERVICES)).status == 403
    assert (await jane("DELETE", f"{SERVICES}/v1.apps")).status == 403


async def test_restart_removes_api_services_no_longer_served() -> None:
    """A server alone on its store; what somebody wrote by hand, or deleted and is served, is another matter."""
    store = SqliteStore(":memory:")
    await store.start()
    clock = Clock()
    first = ApiServer(make_config(store, clock))
    await first.start()
    api = Caller(first, clock)
    await api.create(DEFINITIONS, definition())
    await answered(api, CUSTOM, 200)
    before = await api.get(f"{SERVICES}/v1.apps")
    await api("DELETE", f"{SERVICES}/v1.batch")
    assert (await api("GET", f"{SERVICES}/v1.batch")).status == 404
    await first.stop()
    second = ApiServer(make_config(store, clock, gates=FeatureGates(), runtime_config={}))
    await second.start()
    api = Caller(second, clock)
    names = {each["metadata"]["name"] for each in (await api.get(SERVICES))["items"]}
    assert "v1alpha2.scheduling.k8s.io" not in names and "v1.ml.example.com" in names
    assert (await api.get(f"{SERVICES}/v1.apps"))["metadata"] == before["metadata"]
    assert (await api.get(f"{SERVICES}/v1.batch"))["spec"]["groupPriorityMinimum"] == 17400
    await second.stop()
    await store.stop()


class _Shared(SqliteStore):
    """A store that says that others write to it, too."""

    @property
    def shared(self) -> bool:
        return True


async def test_servers_of_different_versions_keep_each_others_api_services() -> None:
    """What another server keeps is left alone, and neither writes what the other one has written."""
    store = _Shared(":memory:")
    await store.start()
    clock = Clock()
    newer, older = (
        ApiServer(make_config(store, clock)),
        ApiServer(make_config(store, clock, gates=FeatureGates(), runtime_config={})),
    )
    await newer.start()
    prefix = newer.objects.served.preferred("apiregistration.k8s.io", "apiservices").prefix("")
    there = {record.key: record.revision for record in (await store.range(prefix)).records}
    assert any("v1alpha2.scheduling" in key for key in there)
    await older.start()
    assert {record.key: record.revision for record in (await store.range(prefix)).records} == there
    api = Caller(newer, clock)
    await api.create(DEFINITIONS, definition())
    first = await answered(api, CUSTOM, 200)
    for server in (older, newer):
        custom = CustomServices(server.objects)
        await custom.start()
        await custom.settle()
    assert await api.get(CUSTOM) == first
    for server in (older, newer):
        await server.stop()
    await store.stop()
