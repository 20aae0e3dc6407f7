import asyncio
import json
import random
from contextlib import aclosing, asynccontextmanager
from itertools import pairwise
from pathlib import Path

import orjson
import pytest
from aiohttp import web
from fake_api import FakeApi
from hypothesis import given
from hypothesis import strategies as st
from tls_server import certificate, pem, served, server_tls, subject_of

from haru.client.api import ApiClient, path_of
from haru.client.transforms import without_managed_fields
from haru.client.transport import LineSplitter, Response, Stream
from haru.kube import kinds
from haru.kube.errors import StatusError

PODS = kinds.lookup("", "v1", "pods")
NODES = kinds.lookup("", "v1", "nodes")
JOBS = kinds.lookup("batch", "v1", "jobs")
assert PODS and NODES and JOBS


def pod(name: str) -> dict:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns"}}


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def client(api: FakeApi) -> ApiClient:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    client = ApiClient.in_process(api, "secret", "tests/1", rng=random.Random(1), sleep=sleep)
    client.slept = slept  # type: ignore[attr-defined]
    return client


@pytest.mark.parametrize(
    ("kind", "namespace", "name", "subresource", "path"),
    [
        (PODS, "", "", "", "/api/v1/pods"),
        (PODS, "ns", "", "", "/api/v1/namespaces/ns/pods"),
        (PODS, "ns", "a", "binding", "/api/v1/namespaces/ns/pods/a/binding"),
        (JOBS, "ns", "a", "status", "/apis/batch/v1/namespaces/ns/jobs/a/status"),
        (NODES, "ignored", "n", "", "/api/v1/nodes/n"),
    ],
)
def test_path_of_kind_namespace_name_and_subresource(kind, namespace, name, subresource, path):
    assert path_of(kind, namespace, name, subresource) == path


async def test_create_get_update_delete_send_expected_requests(api, client):
    created = await client.create(PODS, pod("a"))
    assert created["metadata"]["uid"]
    assert (await client.get(PODS, "a", "ns"))["metadata"]["name"] == "a"
    created["spec"] = {"nodeName": "n"}
    updated = await client.update(PODS, created)
    assert updated["spec"] == {"nodeName": "n"}
    with pytest.raises(StatusError) as conflict:
        await client.update(PODS, created)
    assert (conflict.value.code, conflict.value.reason) == (409, "Conflict")
    patched = await client.patch(PODS, "a", {"spec": {"nodeName": None}}, "ns", field_manager="me")
    assert "nodeName" not in patched["spec"]
    with pytest.raises(StatusError, match="Operation cannot be fulfilled"):
        await client.delete(PODS, "a", "ns", uid="other")
    await client.delete(PODS, "a", "ns", uid=created["metadata"]["uid"])
    with pytest.raises(StatusError, match='pods "a" not found') as missing:
        await client.get(PODS, "a", "ns")
    assert missing.value.code == 404
    assert api.headers[0]["authorization"] == "Bearer secret"
    assert api.headers[0]["user-agent"] == "tests/1"
    assert api.log[4][2] == {"fieldManager": "me"}


async def test_pages_of_a_list_are_joined_at_one_revision(api, client):
    for number in range(5):
        await client.create(PODS, pod(f"p{number}"))
    listed = await client.list(PODS, "ns", limit=2)
    assert [o["metadata"]["name"] for o in listed["items"]] == ["p0", "p1", "p2", "p3", "p4"]
    assert listed["metadata"] == {"resourceVersion": str(api.revision)}
    assert [entry[2].get("continue") for entry in api.log[-3:]] == [None, "2", "4"]


async def test_pages_of_a_list_come_one_by_one(api, client):
    for number in range(3):
        await client.create(PODS, pod(f"p{number}"))
    seen = []
    async for page, is_first in client.pages(PODS, "ns", limit=2):
        seen.append(([obj["metadata"]["name"] for obj in page["items"]], is_first, api.log[-1][2].get("continue")))
    assert seen == [(["p0", "p1"], True, None), (["p2"], False, "2")]


async def test_list_with_expired_continue_token_is_read_in_one_request(api, client):
    for number in range(3):
        await client.create(PODS, pod(f"p{number}"))
    real, asked = api._list, []

    def listing(kind, namespace, query):
        asked.append(query)
        if "continue" in query:
            raise StatusError(410, "Expired", "gone")
        return real(kind, namespace, query)

    api._list = listing
    listed = await client.list(PODS, limit=2)
    assert len(listed["items"]) == 3
    assert asked[-1] == {}


async def test_collection_is_deleted_in_pages_and_from_the_start_where_a_token_has_expired(api, client):
    def answer(status: int, token: str = "") -> None:
        metadata = {"resourceVersion": "7", **({"continue": token} if token else {})}
        kind = "PodList" if status == 200 else "Status"
        api.fail("DELETE /api/v1/namespaces/ns/pods", status, body=orjson.dumps({"kind": kind, "metadata": metadata}))

    for status, token in ((200, "1"), (200, "2"), (410, ""), (200, "1"), (200, "")):
        answer(status, token)
    await client.delete_collection(PODS, "ns", label_selector="a=b")
    assert [entry[2].get("continue") for entry in api.log] == [None, "1", "2", None, "1"]
    assert {(entry[2]["labelSelector"], entry[2]["limit"]) for entry in api.log} == {("a=b", "500")}
    answer(410)
    with pytest.raises(StatusError):
        await client.delete_collection(PODS, "ns")


@pytest.mark.parametrize(
    ("method", "status", "headers", "attempts"),
    [
        ("GET", 429, {"Retry-After": "3"}, 2),
        ("POST", 429, {"Retry-After": "3"}, 2),
        ("POST", 503, {"Retry-After": "1"}, 2),
        ("POST", 429, {}, 1),
        ("POST", 500, {"Retry-After": "1"}, 1),
        ("GET", 500, {"Retry-After": "1"}, 2),
        ("GET", 503, {}, 1),
        ("GET", 0, {}, 2),
        ("POST", 0, {}, 1),
    ],
)
async def test_retryable_responses_are_retried_after_retry_after(api, client, method, status, headers, attempts):
    await client.create(PODS, pod("a"))
    api.log.clear()
    api.fail(f"{method} /api/v1", status, headers, b"overloaded")
    request = client.get(PODS, "a", "ns") if method == "GET" else client.create(PODS, pod("b"))
    if attempts == 1:
        with pytest.raises((StatusError, ConnectionError)) as failure:
            await request
        if status:
            assert failure.value.code == status
            assert "overloaded" in str(failure.value)
    else:
        await request
        if "Retry-After" in headers:
            assert client.slept[0] == pytest.approx(float(headers["Retry-After"]), rel=0.2)
    assert len(api.log) == attempts


async def test_retries_stop_after_six_attempts(api, client):
    for _ in range(20):
        api.fail("GET", 429, {"Retry-After": "1"})
    with pytest.raises(StatusError):
        await client.get(PODS, "a", "ns")
    assert len(api.log) == 6


async def test_request_without_response_times_out_and_its_work_is_cancelled(client):
    left = asyncio.Event()

    async def silent(scope, receive, send):
        await receive()
        try:
            await receive()
        except asyncio.CancelledError:
            left.set()
            raise

    impatient = ApiClient.in_process(silent, timeout=0.05)
    with pytest.raises(TimeoutError, match=r"GET /api/v1/namespaces/ns/pods/a: no answer within 0.05 s"):
        await impatient.get(PODS, "a", "ns")
    assert left.is_set()


async def test_calls_that_are_answered_at_once_let_other_tasks_run(api, client):
    await client.create(PODS, pod("a"))
    turns = []

    async def other():
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    running = asyncio.create_task(other())
    for _ in range(1000):
        await client.get(PODS, "a", "ns")
    running.cancel()
    assert len(turns) > 10


async def test_watch_yields_events_and_closes_with_its_reader(api, client):
    created = await client.create(PODS, pod("a"))
    async with aclosing(client.watch(PODS, "", "0")) as events:
        assert await anext(events) == ("ADDED", created)
        await client.delete(PODS, "a", "ns")
        assert (await anext(events))[0] == "DELETED"
        assert api.open_watches == 1
    assert api.open_watches == 0


async def test_watch_ends_when_server_closes_it(api, client):
    await client.create(PODS, pod("a"))
    api.end_watches.set()
    assert [event async for event in client.watch(PODS, "", str(api.revision))] == []


@pytest.mark.parametrize("inside", [False, True])
async def test_expired_watch_raises_status_410(api, client, inside):
    gone = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"}
    if inside:
        api.fail("GET /api/v1/pods", 200, {}, json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
    else:
        api.oldest = 100
    with pytest.raises(StatusError) as expired:
        await anext(client.watch(PODS, "", "5"))
    assert (expired.value.code, expired.value.reason) == (410, "Expired")


async def test_response_that_is_not_json_raises_status_error_with_text(api, client):
    api.fail("GET", 502, {}, b"<html>bad gateway</html>")
    with pytest.raises(StatusError, match="answered 502: <html>bad gateway") as failure:
        await client.get(PODS, "a", "ns")
    assert failure.value.code == 502


async def test_requests_and_watches_work_over_a_socket(api):
    """The same requests over HTTP: verbs, a watch that is left early, a server that is not there."""

    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        body = await request.read()
        sent = asyncio.Event()

        async def receive():
            if sent.is_set():
                await asyncio.Event().wait()
            sent.set()
            return {"type": "http.request", "body": body}

        async def send(message):
            if message["type"] == "http.response.start":
                response.set_status(message["status"])
                for name, value in message["headers"]:
                    response.headers[name.decode()] = value.decode()
                await response.prepare(request)
            elif message["body"]:
                await response.write(message["body"])

        query = request.rel_url.raw_query_string.encode()
        headers = [(k.lower().encode(), v.encode()) for k, v in request.headers.items()]
        scope = {"method": request.method, "path": request.path, "query_string": query, "headers": headers}
        await api(scope, receive, send)
        return response

    runner = web.AppRunner(web.Application(), handler_cancellation=True)
    runner.app.router.add_route("*", "/{tail:.*}", handle)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]
    async with ApiClient.http(f"http://127.0.0.1:{port}", token="t") as client:
        created = await client.create(PODS, pod("a"))
        assert await client.get(PODS, "a", "ns") == created
        async with aclosing(client.watch(PODS, "", "0", label_selector="a in (b, c)")) as events:
            assert await anext(events) == ("ADDED", created)
        assert api.log[-1][2]["labelSelector"] == "a in (b, c)"
    await runner.cleanup()
    async with ApiClient.http(f"http://127.0.0.1:{port}", sleep=lambda _: asyncio.sleep(0)) as client:
        with pytest.raises(OSError):
            await client.get(PODS, "a", "ns")


# -- TLS --------------------------------------------------------------------------------------------------------------


async def test_mutual_tls_verifies_both_certificates(tmp_path: Path):
    ca = certificate("ca", ca=True)
    ca_pem, _ = pem(ca)
    stranger_pem, _ = pem(certificate("stranger", ca=True))
    tls = server_tls(tmp_path, ca)

    async def handle(request: web.Request) -> web.Response:
        return web.json_response({"who": subject_of(request)})

    async with served(handle, tls) as url:
        mine = pem(certificate("me", ca))
        async with ApiClient.http(url, ca_pem=ca_pem, cert=mine) as client:
            assert await client.get(PODS, "a", "ns") == {"who": "me"}
        async with ApiClient.http(url, insecure=True, cert=mine) as client:
            assert await client.get(PODS, "a", "ns") == {"who": "me"}
        for options in ({"ca_pem": stranger_pem, "cert": mine}, {"ca_pem": ca_pem}):
            async with ApiClient.http(url, sleep=lambda _: asyncio.sleep(0), **options) as client:
                with pytest.raises(OSError):
                    await client.get(PODS, "a", "ns")


@pytest.mark.parametrize("verified", [True, False])
async def test_later_connections_resume_the_session_of_the_first(tmp_path: Path, verified: bool):
    ca = certificate("ca", ca=True)
    ca_pem, _ = pem(ca)
    tls = server_tls(tmp_path, ca)
    resumed: list[tuple[bool, str]] = []
    together = asyncio.Barrier(3)

    async def handle(request: web.Request) -> web.Response:
        secured = request.transport.get_extra_info("ssl_object")
        resumed.append((secured.session_reused, secured.getpeercert()["subject"][0][0][1]))
        if request.path.endswith("/together"):
            await together.wait()  # so that each has a connection of its own
        return web.json_response({})

    async with served(handle, tls) as url:
        trust = {"ca_pem": ca_pem} if verified else {"insecure": True}
        async with ApiClient.http(url, cert=pem(certificate("me", ca)), **trust) as client:
            await client.get(PODS, "a", "ns")
            async with asyncio.timeout(60):
                await asyncio.gather(*(client.get(PODS, "together", "ns") for _ in range(3)))
        # The first connection carries one of the three as well; nobody is taken for another one.
        assert sorted(resumed) == [(False, "me"), (False, "me"), (True, "me"), (True, "me")]
        async with ApiClient.http(url, cert=pem(certificate("other", ca)), **trust) as client:
            await client.get(PODS, "a", "ns")
        assert resumed[-1] == (False, "other")


class WatchTransport:
    """Answers a watch with these lines."""

    def __init__(self, *lines: bytes) -> None:
        self._lines = lines

    @asynccontextmanager
    async def stream(self, request, timeout):
        async def chunks():
            for line in self._lines:
                yield line + b"\n"

        yield Stream(200, {}, chunks())


OWN = b'{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a",'
AT_7 = b'"uid":"1","resourceVersion":"7","labels":{}}}}'


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        (OWN + AT_7, ("1", "7")),
        (OWN + b'"generateName":"a-","namespace":"ns",' + AT_7, ("1", "7")),
        (OWN.replace(b"MODIFIED", b"ADDED") + AT_7, None),
        (OWN.replace(b"MODIFIED", b"DELETED") + AT_7, None),
        # Not where a server writes it: then the event is decoded.
        (OWN + b'"labels":{"x":"y"},' + AT_7, None),
        (OWN + b'"annotations":{"resourceVersion":"9"},' + AT_7, None),
        (OWN.replace(b'"a"', b'"\\u0061"') + AT_7, None),
        (b'{"object":{"metadata":{"name":"a","resourceVersion":"7"}},"type":"MODIFIED"}', None),
    ],
)
@pytest.mark.parametrize("known", [True, False])
async def test_event_of_known_object_is_not_yielded(line, asked, known):
    questions = []

    def is_known(uid, version, event):
        questions.append((uid, version))
        assert event()[1]["metadata"]["resourceVersion"] == version
        return known

    client = ApiClient(WatchTransport(line))
    async with aclosing(client.watch(PODS, is_known=is_known)) as events:
        yielded = [obj["metadata"]["resourceVersion"] async for _, obj in events]
    assert questions == ([asked] if asked else [])
    assert yielded == ([] if asked and known else ["7"])


@given(st.lists(st.text(st.characters(exclude_characters="\n")), max_size=5), st.lists(st.integers(0, 40), max_size=6))
def test_lines_are_put_together_however_they_are_cut(lines: list[str], cuts: list[int]) -> None:
    data = "".join(f"{line}\n" for line in lines).encode()
    bounds = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    splitter = LineSplitter()
    found = [line for a, b in pairwise(bounds) for line in splitter.feed(data[a:b])]
    assert found == [line.encode() for line in lines if line]


MANAGED = [{"manager": "kubelet", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {'k:{"name":"a"}': {".": {}}}}}]


@given(
    st.lists(st.fixed_dictionaries({"manager": st.text(), "fieldsV1": st.dictionaries(st.text(), st.just({}))})),
    st.text(),
    st.sampled_from(["spec", "status", "data"]),
)
def test_managed_fields_of_an_event_are_all_that_is_cut_out(managed: list[dict], text: str, after: str) -> None:
    metadata = {"name": "a", "annotations": {"x": text, "y": ',"managedFields":[]},"spec":'}}
    event = {"type": "ADDED", "object": {"metadata": {**metadata, "managedFields": managed}, after: {"z": text}}}
    cut = orjson.loads(without_managed_fields(orjson.dumps(event)))
    assert cut in (event, {"type": "ADDED", "object": {"metadata": metadata, after: {"z": text}}})


async def test_watch_without_managed_fields_yields_the_object_without_them() -> None:
    obj = {"metadata": {"name": "a", "resourceVersion": "7", "managedFields": MANAGED}, "spec": {"x": [1]}}
    for asked, found in ((True, MANAGED), (False, None)):
        client = ApiClient(WatchTransport(orjson.dumps({"type": "ADDED", "object": obj}) + b"\n"))
        async with aclosing(client.watch(PODS, managed_fields=asked)) as events:
            assert [seen["metadata"].get("managedFields") async for _, seen in events] == [found]


async def test_client_without_managed_fields_is_answered_without_them() -> None:
    body = orjson.dumps({"kind": "Pod", "metadata": {"name": "a", "managedFields": MANAGED}, "spec": {"x": [1]}})

    class Answers:
        async def send(self, request, timeout):
            return Response(200, {}, body)

    client = ApiClient(Answers())
    assert (await client.get(PODS, "a", "ns"))["metadata"]["managedFields"] == MANAGED
    assert (await client.without_managed_fields().get(PODS, "a", "ns"))["metadata"] == {"name": "a"}
