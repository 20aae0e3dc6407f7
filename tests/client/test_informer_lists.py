"""An informer lists anew: after its revision is gone, while the list expires midway, from a restored server."""

import asyncio

import pytest
from fake_api import FakeApi
from informer_bench import PODS, Heard, informer_of, pod, running

from haru.client.api import ApiClient
from haru.client.informer import object_key
from haru.kube.errors import expired_error
from waiting import until


@pytest.fixture
def api():
    return FakeApi()


@pytest.fixture
def client(api):
    return ApiClient.in_process(api)


async def test_list_whose_items_are_null_is_empty(api, client):
    body = b'{"kind": "PartialObjectMetadataList", "metadata": {"resourceVersion": "10"}, "items": null}'
    api.fail("GET /api/v1/pods", 200, {"content-type": "application/json"}, body)
    informer = informer_of(client)
    async with running(informer):
        assert sum(1 for method, path, query, _ in api.log if "watch" not in query) == 1


async def test_relist_after_410_delivers_differences(api, client):
    for name in ("stays", "goes", "changes"):
        await client.create(PODS, pod(name))
    informer = informer_of(client)
    heard = Heard(informer)
    async with running(informer):
        await until(lambda: api.open_watches)
        heard.entries.clear()
        # What happens while the watch is away is not to be had from the history any more.
        api.history, keep = [], api.history
        for method in (
            client.delete(PODS, "goes", "ns"),
            client.patch(PODS, "changes", {"spec": {}}, "ns"),
            client.create(PODS, pod("new")),
        ):
            api.changed, notify = asyncio.Event(), api.changed
            await method
            api.changed = notify
        api.history = []
        del keep
        api.oldest = api.revision
        api.end_watches.set()
        await until(lambda: not api.open_watches)
        api.end_watches.clear()
        await heard.until("delete goes")
        assert sorted(heard.entries) == ["add new", "delete goes", "update changes"]


class ExpiredPages:
    """A server that compacts its history when the second page of a list is asked for, after changes of its objects."""

    def __init__(self, api, monkeypatch, *changes, size=2):
        monkeypatch.setattr("haru.client.api._PAGE", size)
        self._real, self._changes, self.queries = api._list, list(changes), []
        api._list = self.list

    def list(self, kind, namespace, query):
        self.queries.append(query)
        if "continue" in query and self._changes:
            self._changes.pop(0)()
            raise expired_error("The provided continue parameter is too old")
        return self._real(kind, namespace, query)


def change_pods(api):
    """Delete `a`, change `b`, recreate `c`, create `e`: what the first page said of them is no longer so."""

    def change():
        pods = api.objects
        del pods["pods", "ns", "a"]
        for name, uid in (("b", pods["pods", "ns", "b"]["metadata"]["uid"]), ("c", "another"), ("e", "new")):
            api.revision += 1
            pods["pods", "ns", name] = pod(name, uid=uid, resourceVersion=str(api.revision), labels={"is": "new"})

    return change


@pytest.mark.parametrize("size", [2, 3])
async def test_list_that_expires_midway_starts_anew(api, client, monkeypatch, size):
    for name in "abcd":
        await client.create(PODS, pod(name))
    pages = ExpiredPages(api, monkeypatch, change_pods(api), size=size)
    informer = informer_of(client)
    informer.add_index("is", lambda obj: (obj["metadata"].get("labels") or {}).values())
    heard = Heard(informer)
    async with running(informer):
        assert [query.get("limit") for query in pages.queries] == [str(size), str(size), None]
        assert {key: obj["metadata"]["resourceVersion"] for key, obj in informer.store.items()} == {
            f"ns/{name}": obj["metadata"]["resourceVersion"] for (_, _, name), obj in api.objects.items()
        }
        assert [object_key(obj) for obj in informer.by_index("is", "new")] == ["ns/b", "ns/c", "ns/e"]
        recreated = ["delete c", "add c"] if size == 3 else ["add c"]
        first = [f"add {name}" for name in "abc"[:size]]
        assert heard.entries == [*first, "update b", *recreated, "add d", "add e", "delete a"]
        assert informer.resource_version == str(api.revision) and informer.lists == 1
        await client.create(PODS, pod("f"))
        await heard.until("add f")


async def test_list_that_expires_midway_keeps_newer_own_write(api, client, monkeypatch):
    for name in "abcd":
        await client.create(PODS, pod(name))
    informer = informer_of(client)
    async with running(informer):
        pass
    own = pod("own", uid="own", resourceVersion=str(api.revision + 100))
    ExpiredPages(api, monkeypatch, lambda: informer.observe(own))
    informer.resource_version = ""
    await informer._list()
    assert sorted(informer.store) == ["ns/a", "ns/b", "ns/c", "ns/d", "ns/own"]


async def test_first_list_that_expires_as_server_is_restored_forgets_what_was_never_written(api, client, monkeypatch):
    api.revision = 500
    for name in "abcd":
        await client.create(PODS, pod(name))

    def restore():
        api.revision, api.history = 20, []
        for name in "ab":
            del api.objects["pods", "ns", name]
        for name in "cd":
            api.objects["pods", "ns", name]["metadata"] |= {"resourceVersion": "15", "labels": {"of": "restored"}}

    ExpiredPages(api, monkeypatch, restore)
    informer = informer_of(client)
    async with running(informer):
        assert sorted(informer.store) == ["ns/c", "ns/d"]


async def test_relist_accepts_lower_resource_version_of_restored_server(client, api):
    informer = informer_of(client)
    await client.create(PODS, pod("a", labels={"of": "old"}))
    api.revision = 500
    async with running(informer):
        pass
    api.revision, api.history = 20, []
    api.objects.clear()
    await client.create(PODS, pod("a", labels={"of": "restored"}))
    informer.resource_version = ""
    await informer._list()
    assert informer.store["ns/a"]["metadata"]["labels"] == {"of": "restored"}


async def test_list_of_a_restored_server_that_expires_midway_starts_anew(api, client, monkeypatch):
    """What its first page had, and what has gone since, is not there."""
    api.revision = 500
    informer = informer_of(client)
    async with running(informer):
        pass
    api.revision = 20
    for name in "abcd":
        await client.create(PODS, pod(name))
    ExpiredPages(api, monkeypatch, change_pods(api))
    informer.resource_version = ""
    await informer._list()
    assert sorted(informer.store) == ["ns/b", "ns/c", "ns/d", "ns/e"]


async def test_write_of_another_one_is_heard_though_its_revision_was_an_own_write_before_the_server_was_restored(
    api, client
):
    api.revision = 500
    await client.create(PODS, pod("a"))
    informer = informer_of(client)
    async with running(informer):
        own = {**informer.store["ns/a"]["metadata"], "resourceVersion": "505"}
    informer.observe({**pod("a"), "metadata": own})
    api.revision, api.history = 20, []
    api.objects["pods", "ns", "a"]["metadata"]["resourceVersion"] = "15"
    informer.resource_version = ""
    await informer._list()
    informer._hear("MODIFIED", {**pod("a"), "metadata": {**own, "labels": {"of": "another"}}})
    assert informer.store["ns/a"]["metadata"]["labels"] == {"of": "another"}
