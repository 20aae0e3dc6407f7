import asyncio

import pytest
from counted_calls import assert_flat, steps
from fake_api import FakeApi
from informer_bench import NODES, PODS, Heard, informer_of, pod, running

from haru.client.api import ApiClient
from haru.client.informer import object_key
from haru.client.shared_informers import SharedInformers
from haru.client.transforms import SharedObjects
from waiting import until


@pytest.fixture
def api():
    return FakeApi()


@pytest.fixture
def client(api):
    return ApiClient.in_process(api)


async def test_handlers_receive_changes_in_order(api, client):
    await client.create(PODS, pod("a"))
    informer = informer_of(client)
    heard = Heard(informer)
    async with running(informer):
        assert heard.entries == ["add a"]
        assert informer.store["ns/a"]["kind"] == "Pod"  # items of lists come without
        await client.patch(PODS, "a", {"spec": {"x": 1}}, "ns")
        await client.create(PODS, pod("b"))
        await client.delete(PODS, "a", "ns")
        await heard.until("delete a")
        assert heard.entries == ["add a", "update a", "add b", "delete a"]
        assert list(informer.store) == ["ns/b"]
        late = Heard(informer)
        assert late.entries == ["add b"]
    assert api.open_watches == 0


async def test_watch_resumes_after_server_closes_it(api, client):
    informer = informer_of(client)
    heard = Heard(informer)
    async with running(informer):
        await client.create(PODS, pod("a"))
        await heard.until("add a")
        api.end_watches.set()
        await until(lambda: not api.open_watches)
        api.end_watches.clear()
        await client.create(PODS, pod("b"))
        await heard.until("add b")
    assert sum(1 for method, path, query, _ in api.log if method == "GET" and "watch" not in query) == 1
    assert heard.entries == ["add a", "add b"]


async def test_recreated_object_is_delivered_as_delete_and_add(client, api):
    informer = informer_of(client)
    heard = Heard(informer)
    async with running(informer):
        informer.observe(pod("a", uid="1", resourceVersion="100"))
        informer._hear("MODIFIED", pod("a", uid="2", resourceVersion="101"))
        assert heard.entries == ["add a", "delete a", "add a"]


async def test_deletion_of_an_object_that_was_made_anew_leaves_the_new_one(client, api):
    informer = informer_of(client)
    heard = Heard(informer)
    async with running(informer):
        informer._hear("ADDED", pod("a", uid="1", resourceVersion="100"))
        informer.observe(pod("a", uid="2", resourceVersion="102"))
        informer._hear("DELETED", pod("a", uid="1", resourceVersion="101"))
        assert informer.store["ns/a"]["metadata"]["uid"] == "2"
        assert heard.entries == ["add a", "delete a", "add a"]


async def test_own_write_is_visible_at_once_and_older_event_is_dropped(client, api):
    informer = informer_of(client)
    heard = Heard(informer)
    async with running(informer):
        informer.observe(pod("a", uid="1", resourceVersion="105", labels={"new": "1"}))
        informer._hear("ADDED", pod("a", uid="1", resourceVersion="103"))
        assert informer.store["ns/a"]["metadata"]["labels"] == {"new": "1"}
        informer._hear("MODIFIED", pod("a", uid="1", resourceVersion="105"))
        assert heard.entries == ["add a"]
        # Written before what the watch has brought: it may be long gone.
        informer.observe(pod("b", uid="2", resourceVersion="104"))
        assert "ns/b" not in informer.store


async def test_event_of_observed_write_is_passed_over(client, api):
    informer = informer_of(client)
    heard = Heard(informer)
    async with running(informer):
        informer._hear("ADDED", pod("a", uid="1", resourceVersion="100"))
        informer.observe(pod("a", uid="1", resourceVersion="105"))
        waiting = asyncio.create_task(informer.wait_seen(105))
        informer._hear("MODIFIED", pod("a", uid="1", resourceVersion="105"))
        await asyncio.wait_for(waiting, 60)
        assert heard.entries == ["add a", "update a"] and informer.resource_version == "105"
        # The same revision of another object is another write.
        informer._hear("MODIFIED", pod("b", uid="2", resourceVersion="106"))
        assert heard.entries[2:] == ["add b"]


async def test_announced_write_is_heard_when_it_is_observed(client, api):
    informer = informer_of(client)
    heard = Heard(informer)
    async with running(informer):
        informer.observe(pod("a", uid="1", resourceVersion="100"))
        informer.announce(pod("a", uid="1", resourceVersion="101"))
        informer._hear("MODIFIED", pod("a", uid="1", resourceVersion="101"))
        informer._hear("ADDED", pod("b", uid="2", resourceVersion="102"))
        assert heard.entries == ["add a", "add b"]
        # The write that was to follow it failed.
        informer.observe(pod("a", uid="1", resourceVersion="101", finalizers=["x"]))
        assert heard.entries == ["add a", "add b", "update a"]
        assert informer.store["ns/a"]["metadata"]["finalizers"] == ["x"]


async def test_announced_write_that_watch_has_shown_is_not_waited_for(client, api):
    informer = informer_of(client)
    heard = Heard(informer)
    async with running(informer):
        informer._hear("ADDED", pod("a", uid="1", resourceVersion="101"))
        informer.announce(pod("a", uid="1", resourceVersion="101"))
        assert not informer._own_writes
        for number in range(5000):
            informer.announce(pod(f"p{number}", uid=str(number), resourceVersion=str(200 + number)))
            informer._heard(str(200 + number))
        assert len(informer._own_writes) <= 1100
    assert heard.entries == ["add a"]


async def test_own_write_takes_as_much_however_far_the_watch_is_behind(client, api):
    informer = informer_of(client)
    async with running(informer):
        costs = {}
        for size in (1000, 4000):
            writes = [pod("p", uid=f"{size}-{n}", resourceVersion=str(10_000 * size + n)) for n in range(size)]
            costs[size] = steps(lambda writes=writes: [informer.announce(write) for write in writes])
            costs[size].count //= size
    assert_flat(costs, "an own write that the watch has not shown")


async def test_events_wait_while_an_own_write_of_their_object_is_under_way(client, api):
    informer = informer_of(client)
    heard = Heard(informer)

    def shown(version, **more):
        event = "MODIFIED", pod("a", uid="1", resourceVersion=version, **more)
        return informer._is_own_write("1", version, lambda: event)

    def never():
        raise AssertionError("an event that shows less than is known is not decoded")

    async with running(informer):
        informer._hear("ADDED", pod("a", uid="1", resourceVersion="100"))
        informer.hold_events(informer.store["ns/a"])
        assert not informer._is_own_write("2", "101", never), "of another object"
        assert informer._is_own_write("1", "102", never)
        informer._hear("MODIFIED", pod("a", uid="1", resourceVersion="103"))
        informer.observe(pod("a", uid="1", resourceVersion="103"))
        assert heard.entries == ["add a", "update a"] and informer.resource_version == "103"
        # Somebody else wrote after us, before our answer came.
        informer.hold_events(informer.store["ns/a"])
        assert shown("105", labels={"of": "another"})
        assert informer.store["ns/a"]["metadata"]["resourceVersion"] == "103"
        informer.observe(pod("a", uid="1", resourceVersion="104"))
        assert informer.store["ns/a"]["metadata"]["labels"] == {"of": "another"}
        # Our write failed, since somebody else was first.
        informer.hold_events(informer.store["ns/a"])
        assert shown("106")
        informer.observe(informer.store["ns/a"])
        assert informer.store["ns/a"]["metadata"]["resourceVersion"] == "106"
        assert heard.entries == ["add a"] + 4 * ["update a"]
        assert not informer._is_own_write("1", "107", never)


async def test_who_waits_for_a_revision_has_the_events_that_wait_for_an_own_write(client, api):
    informer = informer_of(client)
    async with running(informer):
        informer._hear("ADDED", pod("a", uid="1", resourceVersion="100"))
        informer.hold_events(informer.store["ns/a"])
        informer._hear("MODIFIED", pod("a", uid="1", resourceVersion="101"))
        assert informer.store["ns/a"]["metadata"]["resourceVersion"] == "100"
        await asyncio.wait_for(informer.wait_seen(101), 60)
        assert informer.store["ns/a"]["metadata"]["resourceVersion"] == "101"


@pytest.mark.parametrize("listed", [False, True])
async def test_event_that_waits_for_an_own_write_does_not_bring_back_what_was_deleted(client, api, listed):
    informer = informer_of(client)
    heard = Heard(informer)
    async with running(informer):
        before = pod("a", uid="1", resourceVersion="5")
        informer._hear("ADDED", before)
        informer.hold_events(before)
        informer._hear("MODIFIED", pod("a", uid="1", resourceVersion="6"))
        if listed:
            await informer._list()
        else:
            informer._hear("DELETED", pod("a", uid="1", resourceVersion="7"))
        informer.observe(before)
        assert heard.entries == ["add a", "delete a"]
        assert "ns/a" not in informer.store


async def test_own_deletion_is_visible_at_once_and_is_not_undone_by_older_event(client, api):
    informer = informer_of(client)
    heard = Heard(informer)
    async with running(informer):
        obj = pod("a", uid="1", resourceVersion="100")
        informer.observe(obj)
        informer.observe_deleted(obj, {"kind": "Status", "status": "Success"})
        informer._hear("MODIFIED", pod("a", uid="1", resourceVersion="101"))
        assert "ns/a" not in informer.store
        informer._hear("DELETED", pod("a", uid="1", resourceVersion="102"))
        assert heard.entries == ["add a", "delete a"]
        still_there = pod("b", uid="2", resourceVersion="110", deletionTimestamp="now")
        informer.observe(pod("b", uid="2", resourceVersion="109"))
        informer.observe_deleted(pod("b", uid="2"), still_there)
        assert informer.store["ns/b"]["metadata"]["deletionTimestamp"] == "now"


async def test_index_follows_updates(client, api):
    informer = informer_of(client)
    informer.add_index("node", lambda obj: [obj["spec"]["nodeName"]] if obj.get("spec") else [])
    heard = Heard(informer)
    async with running(informer):
        await client.create(PODS, {**pod("a"), "spec": {"nodeName": "n1"}})
        await client.create(PODS, {**pod("b"), "spec": {"nodeName": "n1"}})
        await heard.until("add b")
        assert [object_key(o) for o in informer.by_index("node", "n1")] == ["ns/a", "ns/b"]
        await client.patch(PODS, "a", {"spec": {"nodeName": "n2"}}, "ns")
        await client.delete(PODS, "b", "ns")
        await heard.until("delete b")
        assert informer.by_index("node", "n1") == []
        assert [object_key(o) for o in informer.by_index("node", "n2")] == ["ns/a"]
        assert set(informer._indexes["node"]._by_value) == {"n2"}


async def test_list_failures_are_retried_with_exponential_backoff(client, api):
    pauses = []
    informer = informer_of(client, pauses)
    for _ in range(7):
        api.fail("GET /api/v1/pods", 500)
    async with running(informer):
        assert len(pauses) == 7
        assert pauses[0] <= 1.6
        assert pauses[-1] == 30.0
        assert pauses == sorted(pauses)


class _Watched:
    """A client whose watch shows one write, of which it asks whether it is known, and ends."""

    shared = None

    async def watch(self, *_, is_known, **__):
        assert is_known("1", "101", None)
        return
        yield


async def test_watch_that_showed_own_writes_alone_is_opened_again_without_a_pause():
    pauses = []
    informer = informer_of(_Watched(), pauses)
    informer._backoff.next()
    informer.announce(pod("a", uid="1", resourceVersion="101"))
    await informer._watch()
    assert informer.resource_version == "101"
    assert pauses == []
    assert informer._backoff.next() <= 1.6, "the shortest pause comes first again"


async def test_failing_handler_does_not_stop_other_handlers(client, api, caplog):
    informer = informer_of(client)
    informer.add_handler(lambda obj: 1 / 0)
    heard = Heard(informer)
    async with running(informer):
        await client.create(PODS, pod("a"))
        await heard.until("add a")
    assert "a handler failed for ns/a" in caplog.text


async def test_managed_fields_are_dropped_from_store(client, api):
    informer = informer_of(client)
    await client.create(PODS, pod("a", managedFields=[{"manager": "x"}]))
    async with running(informer):
        assert "managedFields" not in informer.store["ns/a"]["metadata"]


def test_object_stripped_twice_is_one_object_and_another_at_its_place_is_not_taken_for_it():
    first = pod("a", managedFields=[{"manager": "x"}], labels={"a": "b"})
    shared = SharedObjects()
    stripped = shared.strip(first)
    assert shared.strip(first) is stripped
    assert stripped == pod("a", labels={"a": "b"})
    assert first["metadata"]["managedFields"]
    for number in range(3000):
        assert shared.strip(pod(f"p{number}", managedFields=[]))["metadata"]["name"] == f"p{number}"


async def test_informers_that_share_objects_keep_one_stripped_object_and_others_each_its_own(client):
    shared = SharedObjects()
    given = pod("a", managedFields=[{"manager": "x"}])
    kept = []
    for one in (ApiClient.in_process(FakeApi(), shared=shared), ApiClient.in_process(FakeApi(), shared=shared), client):
        informer = informer_of(one)
        informer._apply(given)
        kept.append(informer.store["ns/a"])
    assert kept[0] is kept[1]
    assert kept[0] == kept[2]
    assert kept[0] is not kept[2]
    assert shared.common(list) is shared.common(list)


async def test_informers_are_shared_and_can_be_requested_after_start(client, api):
    shared = SharedInformers(client)
    pods = shared.get(PODS)
    assert shared.get(PODS) is pods
    assert shared.get(PODS, "ns") is not pods
    task = asyncio.create_task(shared.run())
    await asyncio.wait_for(shared.wait_synced(), 60)
    nodes = shared.get(NODES)
    await asyncio.wait_for(nodes.wait_synced(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert api.open_watches == 0


async def test_malformed_list_response_is_retried(client, api):
    informer = informer_of(client, [])
    await client.create(PODS, pod("a"))
    for body in (b"not json", b"{}", b'{"items": [{"metadata": null}]}', b"[]"):
        api.fail("GET /api/v1/pods", 200, {}, body)
    async with running(informer):
        assert list(informer.store) == ["ns/a"]
