"""Cached list responses show the current objects at every moment, and stay within their size limit."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import random
import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from api_caller import MAPS, PODS, Caller, config_map, pod
from hypothesis import given, settings
from hypothesis import strategies as st

from haru.apiserver import background
from haru.apiserver.encoding import gzip_parts, list_cache
from haru.apiserver.encoding.list_cache import FROM_RECORDS, EncodedItems, ListBody, ListCache
from haru.apiserver.registry import list as registry_list
from haru.storage import Record

Obj = dict[str, Any]
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
OTHERS = MAPS.replace("default", "kube-system")
COUNT = 3 * FROM_RECORDS


class Collection:
    """Records by their keys, and how often one was encoded."""

    def __init__(self, lists: ListCache) -> None:
        self.records: dict[str, Record] = {}
        self.lists = lists
        self.encoded = 0
        self._revision = 0

    def put(self, key: str, size: int) -> None:
        self._revision += 1
        self.records[key] = Record(key, b"%b@%d:%b" % (key.encode(), self._revision, b"x" * size), self._revision)

    def encode(self, record: Record) -> bytes:
        self.encoded += 1
        return record.value

    @property
    def ordered(self) -> list[Record]:
        return [self.records[key] for key in sorted(self.records)]

    def kept(self, which: str = "maps") -> list[EncodedItems] | None:
        return self.lists.items((which,), self.ordered, self.encode)

    def items(self, which: str = "maps") -> list[EncodedItems]:
        kept = self.kept(which)
        assert kept is not None
        return kept

    def check(self) -> None:
        expected = b",".join(record.value for record in self.ordered)
        assert b"".join(ListBody(b"[", self.items()).pieces) == b"[%b]}" % expected


@pytest.mark.parametrize("seed", range(4))
def test_cached_pieces_equal_the_list_after_any_change(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Changes one at a time and many at once, growth from nothing, and shrinking to nothing."""
    monkeypatch.setattr(list_cache, "PIECE_BYTES", 1_000)
    choose, collection = random.Random(seed), Collection(ListCache())
    for step in range(200):
        grows = step % 100 < 60
        for _ in range(choose.choice((0, 1, 1, 2, 30))):
            key = f"k{choose.randrange(300):03}"
            if choose.random() < (0.8 if grows else 0.2):
                collection.put(key, choose.choice((1, 50, 400)))
            else:
                collection.records.pop(key, None)
        collection.check()
        pieces = collection.items()
        pairs = itertools.pairwise(pieces)
        assert all(len(one.body) + len(next_.body) > 1_000 for one, next_ in pairs), "no crumbs are left"
    collection.records.clear()
    collection.check()


async def test_compressed_pieces_form_one_gzip_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where another piece becomes the first one, and for readers that take one stream only."""
    monkeypatch.setattr(list_cache, "PIECE_BYTES", 1_000)
    collection = Collection(ListCache())
    for number in range(100):
        collection.put(f"k{number:02}", 100)
    for first in (0, 0, 30, 20, 95, 99):
        for key in [key for key in collection.records if key < f"k{first:02}"]:
            del collection.records[key]
        if first == 20:
            collection.put("k20", 100)
        body = ListBody(b'{"items":[', collection.items())
        stream, plain = b"".join(await body.gzipped()), b"".join(body.pieces)
        inflate = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        assert inflate.decompress(stream) == plain and inflate.eof and not inflate.unused_data
        assert gzip.decompress(stream) == plain
        assert collection.lists.size == sum(each.size for each in collection.items())


@settings(max_examples=40)
@given(st.lists(st.binary(max_size=300), max_size=12))
def test_separately_compressed_parts_form_one_gzip_stream(texts: list[bytes]) -> None:
    assert gzip.decompress(b"".join(gzip_parts.joined([gzip_parts.deflated(text) for text in texts]))) == b"".join(
        texts
    )


def test_change_reencodes_only_its_piece() -> None:
    collection = Collection(ListCache())
    for number in range(5_000):
        collection.put(f"k{number:04}", 2_000)
    collection.check()
    first, collection.encoded = collection.encoded, 0
    assert first == 5_000
    collection.check()
    assert collection.encoded == 0
    a_piece = 2 * list_cache.PIECE_BYTES // 2_000
    for change in ("changed", "new", "deleted"):
        if change == "deleted":
            del collection.records["k2500"]
        else:
            collection.put("k2500" if change == "changed" else "k2500a", 2_000)
        collection.check()
        assert 0 < collection.encoded <= a_piece, change
        collection.encoded = 0


def test_list_cache_is_bounded_in_bytes_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_cache, "KEPT_BYTES", 100_000)
    lists = ListCache()
    collection = Collection(lists)
    for number in range(40):
        collection.put(f"k{number:02}", 1_000)
    for number in range(10):
        collection.items(f"list {number}")
        assert lists.size <= 100_000
    collection.encoded = 0
    collection.items("list 9")
    collection.items("list 8")
    assert collection.encoded == 0, "the last two are kept"
    for number in range(100):
        collection.put(f"l{number:03}", 1_000)
    assert collection.kept() is None
    assert lists.size <= 100_000, "one that is too large is not kept"
    collection.encoded = 0
    assert collection.kept() is None and collection.encoded == 0, "and not tried again at once"
    lists.drop_idle()
    for number in range(100):
        del collection.records[f"l{number:03}"]
    collection.check()
    lists.drop_idle()
    collection.encoded = 0
    collection.items("list of now")
    lists.drop_idle()
    lists.drop_idle()
    assert lists.size == 0


# --- through the API


async def pieces_of(api: Caller, url: str) -> AsyncIterator[bytes]:
    """The pieces of an answer, each taken before the next one is made."""
    pieces: asyncio.Queue[bytes] = asyncio.Queue(1)

    async def receive() -> Obj:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        await pieces.join()
        await pieces.put(message.get("body", b""))

    answering = asyncio.create_task(api.app(api._scope("GET", url, {}), receive, send))
    while not (answering.done() and pieces.empty()):
        taking = asyncio.create_task(pieces.get())
        await asyncio.wait([taking, answering], return_when=asyncio.FIRST_COMPLETED)
        if taking.done():
            yield taking.result()
            pieces.task_done()
        else:
            taking.cancel()
    await answering


async def fill(api: Caller) -> None:
    for number in range(COUNT):
        await api.create(MAPS, config_map(f"m{number:03}", text=f"{number}"))
    await api.create(OTHERS, config_map("other"))


async def check(api: Caller) -> None:
    """Lists in every form show what pages of single objects show."""
    listed = await api.get(MAPS)
    assert listed == (await api.get(MAPS)), "the second time"
    assert listed["metadata"] == {"resourceVersion": str(api.app.objects.store.revision)}
    items = []
    token = ""
    while True:
        page = await api.get(f"{MAPS}?limit=7&continue={token}")
        items += page["items"]
        token = page["metadata"].get("continue", "")
        if not token:
            break
    assert listed["items"] == items
    headers = json.loads((await api("GET", MAPS, accept=PARTIAL_LIST)).body)
    assert headers["kind"] == "PartialObjectMetadataList"
    assert [one["metadata"] for one in headers["items"]] == [one["metadata"] for one in items]
    everywhere = await api.get("/api/v1/configmaps")
    assert [one for one in everywhere["items"] if one["metadata"]["namespace"] == "default"] == items
    assert len(everywhere["items"]) > len(items)


async def test_cached_list_follows_every_change(api: Caller) -> None:
    await fill(api)
    await check(api)
    before = await api.get(MAPS)
    revision = before["metadata"]["resourceVersion"]
    await api("PATCH", f"{MAPS}/m010", {"data": {"text": "new"}}, type="application/merge-patch+json")
    await check(api)
    await api("DELETE", f"{MAPS}/m020")
    await check(api)
    await api.create(MAPS, config_map("m0200"))
    await check(api)
    assert await api.get(f"{MAPS}?resourceVersion={revision}&resourceVersionMatch=Exact") == before
    await check(api)
    assert (await api("DELETE", MAPS)).status == 200
    assert (await api.get(MAPS))["items"] == []
    others = [one["metadata"]["name"] for one in (await api.get(OTHERS))["items"]]
    assert others == ["kube-apiserver-legacy-service-account-token-tracking", "other"]


async def test_compressed_and_pretty_lists_agree(api: Caller) -> None:
    await fill(api)
    plain = await api("GET", MAPS)
    assert int(plain.headers["content-length"]) == len(plain.body)
    pretty = await api("GET", f"{MAPS}?pretty=true")
    assert pretty.json == plain.json and pretty.body.startswith(b"{\n  ")
    for number in range(COUNT):
        await api("PATCH", f"{MAPS}/m{number:03}", {"data": {"t": "x" * 2_000}}, type="application/merge-patch+json")
    plain, packed = await api("GET", MAPS), await api("GET", MAPS, accept_encoding="gzip")
    assert packed.headers["content-encoding"] == "gzip" and len(packed.body) < len(plain.body) / 10
    assert gzip.decompress(packed.body) == plain.body
    again = await api("GET", MAPS, accept_encoding="gzip")
    assert again.body == packed.body and again.headers["content-length"] == str(len(packed.body))
    pretty = await api("GET", f"{MAPS}?pretty=true", accept_encoding="gzip")
    assert json.loads(gzip.decompress(pretty.body)) == plain.json


@pytest.mark.parametrize("query", ["", "?labelSelector=!none"])
async def test_list_beyond_the_bound_is_encoded_while_it_is_sent(
    api: Caller, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    for number in range(COUNT):
        await api.create(MAPS, config_map(f"m{number:03}", text="x" * 1_000))
    short = await api("GET", MAPS + query)
    monkeypatch.setattr(list_cache, "KEPT_BYTES", 10_000)
    monkeypatch.setattr(list_cache, "PIECE_BYTES", 2_000)
    api.app.components.handlers.lists.drop_idle()
    api.app.components.handlers.lists.drop_idle()
    encoded: list[str] = []
    encode = registry_list.item_bytes

    def counted(record: Record, resource: Any) -> bytes:
        encoded.append(record.key)
        return encode(record, resource)

    monkeypatch.setattr(registry_list, "item_bytes", counted)
    for _ in range(2):
        long = await api("GET", MAPS + query)
        assert long.json["items"] == short.json["items"] and "content-length" not in long.headers
    assert api.app.components.handlers.lists.size == 0
    ahead: list[int] = []
    encoded.clear()
    async for _ in pieces_of(api, MAPS + query):
        ahead.append(len(encoded))
    # Up to the bound to find out that it is exceeded, then two records for a piece that is taken.
    measured = ahead[0]
    assert measured <= 12 and [now - before for before, now in itertools.pairwise(ahead)].count(2) >= COUNT // 2 - 1
    packed = await api("GET", MAPS + query, accept_encoding="gzip")
    assert packed.headers["content-encoding"] == "gzip" and gzip.decompress(packed.body) == long.body


async def test_versions_of_a_kind_are_cached_separately(api: Caller) -> None:
    path = "/apis/resource.k8s.io/{}/deviceclasses"
    for number in range(FROM_RECORDS + 1):
        body = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": f"c{number}"}}
        await api.create(path.format("v1"), body)
    for _ in range(2):
        for version in ("v1", "v1beta1", "v1beta2"):
            listed = await api.get(path.format(version))
            assert listed["apiVersion"] == f"resource.k8s.io/{version}"
            assert not any("apiVersion" in one for one in listed["items"])
            assert len(listed["items"]) == FROM_RECORDS + 1


async def test_cached_list_requires_permission(api: Caller) -> None:
    for number in range(FROM_RECORDS):
        await api.create(PODS, pod(f"p{number}"))
    assert (await api("GET", PODS)).status == 200 and api.app.components.handlers.lists.size
    assert (await api.as_("user-token")("GET", PODS)).status == 403


async def test_unused_lists_are_dropped_from_cache(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(api)
    await api.get(MAPS)
    assert api.app.components.handlers.lists.size
    monkeypatch.setattr(background, "PAUSE_SECONDS", 0.01)
    keeping = asyncio.create_task(api.app.components.background.run())
    for _ in range(3_000):
        if not api.app.components.handlers.lists.size:
            break
        await asyncio.sleep(0.01)
    assert not api.app.components.handlers.lists.size
    keeping.cancel()
    await asyncio.wait([keeping])
    await check(api)
