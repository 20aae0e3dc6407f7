"""The cache of an external signer's keys in virtual time: when they are fetched, and what is kept after failures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fake_signer import TestKey, ec_key

import virtual_time
from haru.apiserver.auth.token_options import TokenOptions
from haru.apiserver.auth.tokens.external import Copy, ExternalKeys, KeyCopy, read_copy
from haru.apiserver.auth.tokens.metrics import TokenMetrics
from haru.apiserver.auth.tokens.sources import SignerError
from haru.externaljwt import Keys

K1, K2 = ec_key("k1"), ec_key("k2")


class Source:
    """Answers, or fails, as it is told; and notes when it was asked."""

    def __init__(self, hint: int = 100, seconds: float = 0.0) -> None:
        self.keys: list[TestKey] = [K1]
        self.hint, self.seconds, self.data, self.fails = hint, seconds, 1, False
        self.asked: list[float] = []
        self.changes = 0

    async def fetch(self) -> Keys:
        self.asked.append(round(asyncio.get_running_loop().time(), 1))
        await asyncio.sleep(self.seconds)
        if self.fails:
            raise SignerError("UNAVAILABLE", "away")
        return Keys([key.public() for key in self.keys], self.data, self.hint)

    def changed(self) -> None:
        self.changes += 1


def run(source: Source, work: Callable[[KeyCopy, TokenMetrics], Awaitable[None]]) -> TokenMetrics:
    metrics = TokenMetrics(external=True)

    async def all_of_it() -> None:
        copy = KeyCopy(source.fetch, metrics, source.changed)
        await copy.start()
        try:
            await work(copy, metrics)
        finally:
            await copy.stop()

    virtual_time.run(all_of_it())
    return metrics


def test_keys_are_fetched_when_refresh_hint_expires() -> None:
    source = Source()

    async def work(copy: KeyCopy, metrics: TokenMetrics) -> None:
        await asyncio.sleep(250)
        source.hint = 10
        await asyncio.sleep(75)

    run(source, work)
    assert source.asked == [0, 100, 200, 300, 310, 320]


def test_failed_fetch_keeps_keys_and_retries_every_ten_seconds() -> None:
    source = Source()

    async def work(copy: KeyCopy, metrics: TokenMetrics) -> None:
        source.fails = True
        await asyncio.sleep(135)
        assert [key.key_id for key in copy.copy.keys] == ["k1"]
        assert metrics.fetches == {"OK": 1, "UNAVAILABLE": 4}
        source.fails = False
        await asyncio.sleep(100)

    run(source, work)
    assert source.asked == [0, 100, 110, 120, 130, 140]


def test_fetch_for_unknown_key_postpones_next_refresh() -> None:
    source = Source()

    async def work(copy: KeyCopy, metrics: TokenMetrics) -> None:
        await asyncio.sleep(60)
        source.keys = [K1, K2]
        assert [key.key_id for key in await copy.find("k2")] == ["k2"]
        await asyncio.sleep(99)
        assert source.asked == [0, 60]
        await asyncio.sleep(2)

    run(source, work)
    assert source.asked == [0, 60, 160]


def test_fetches_for_unknown_keys_are_a_second_apart() -> None:
    source = Source(hint=10_000)

    async def work(copy: KeyCopy, metrics: TokenMetrics) -> None:
        asking = []
        for number in range(200):
            asking.append(asyncio.create_task(_nobody(copy, f"{number}")))
            await asyncio.sleep(0.05)
        await asyncio.gather(*asking)

    async def _nobody(copy: KeyCopy, key_id: str) -> None:
        assert list(await copy.find(key_id)) == []

    run(source, work)
    assert len(source.asked) == 11, source.asked
    assert all(later - earlier >= 1 for earlier, later in zip(source.asked, source.asked[1:], strict=False))


def test_waiting_requests_share_one_fetch_with_time_limit() -> None:
    source = Source(hint=10_000)

    async def work(copy: KeyCopy, metrics: TokenMetrics) -> None:
        await asyncio.sleep(5)
        source.seconds = 30
        began = asyncio.get_running_loop().time()
        assert await asyncio.gather(*(copy.find(f"{n}") for n in range(50))) == [()] * 50
        assert 10 <= asyncio.get_running_loop().time() - began < 11
        assert source.asked == [0, 5]
        # The flight goes on for whoever comes next.
        source.keys = [K2]
        await asyncio.sleep(25)
        assert source.asked == [0, 5] and list(await copy.find("k2")) == [copy.copy.keys[0]]

    run(source, work)


def test_number_of_waiting_requests_is_limited() -> None:
    source = Source(hint=10_000)

    async def work(copy: KeyCopy, metrics: TokenMetrics) -> None:
        await asyncio.sleep(5)
        source.seconds = 3
        waiting = [asyncio.create_task(copy.find(f"{n}")) for n in range(300)]
        await asyncio.sleep(0.1)
        assert sum(task.done() for task in waiting) == 300 - 256
        await asyncio.gather(*waiting)

    run(source, work)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda s: None, 0),
        (lambda s: setattr(s, "data", 2), 1),
        (lambda s: setattr(s, "keys", [K1]), 1),
        (lambda s: setattr(s, "keys", [K2, K1]), 1),
        (lambda s: setattr(s, "keys", [K1, TestKey("k2", K2.private, True)]), 1),
        (lambda s: setattr(s, "keys", [K1, TestKey("k2", ec_key("k2").private)]), 0),
    ],
    ids=["nothing", "data", "count", "order", "excluded", "only what a key is"],
)
def test_changed_keys_are_reported(change: Callable[[Source], None], told: int) -> None:
    source = Source()
    source.keys = [K1, K2]

    async def work(copy: KeyCopy, metrics: TokenMetrics) -> None:
        await asyncio.sleep(1)
        before = source.changes
        change(source)
        await asyncio.sleep(101)
        assert source.changes - before == told

    run(source, work)


class Client:
    """A signer's client over a source."""

    def __init__(self, source: Source) -> None:
        self.fetch_keys = source.fetch

    def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def metadata(self) -> int:
        return 3600


def test_documents_may_be_cached_until_next_fetch() -> None:
    source = Source(hint=100)

    async def all_of_it() -> None:
        client: Any = Client(source)
        keys = ExternalKeys(client, TokenMetrics(external=True), source.changed)
        assert await keys.start(TokenOptions("s")) == (3600, 3600)
        ages = []
        await asyncio.sleep(0.5)
        for _ in range(3):
            await asyncio.sleep(30)
            ages.append(keys.max_age())
        source.fails = True
        await asyncio.sleep(25)
        ages.append(keys.max_age())
        source.fails = False
        await asyncio.sleep(10)
        ages.append(keys.max_age())
        assert ages == [69, 39, 9, 0, 94], ages
        await keys.stop()

    virtual_time.run(all_of_it())


def test_waiting_requests_end_when_server_stops() -> None:
    source = Source(hint=10_000)

    async def all_of_it() -> None:
        copy = KeyCopy(source.fetch, TokenMetrics(external=True), source.changed)
        await copy.start()
        await asyncio.sleep(5)
        source.seconds = 30
        waiting = asyncio.create_task(copy.find("k2"))
        gone = asyncio.create_task(copy.find("k3"))
        await asyncio.sleep(1)
        gone.cancel()
        await asyncio.wait([gone])
        assert gone.cancelled() and not waiting.done()
        await copy.stop()
        assert await waiting == ()

    virtual_time.run(all_of_it())


def test_failed_first_fetch_is_raised() -> None:
    source = Source()
    source.fails = True

    async def work(copy: KeyCopy, metrics: TokenMetrics) -> None:
        raise AssertionError("it must not have started")

    with pytest.raises(SignerError, match="away"):
        run(source, work)


def test_unchanged_key_object_is_reused() -> None:
    first = read_copy(Keys([K1.public(), K2.public()], 1, 60), Copy(), 0.0)
    second = read_copy(Keys([K2.public(), K1.public()], 2, 60), first, 60.0)
    assert second.keys[0] is first.keys[1] and second.keys[1] is first.keys[0]
    renamed = read_copy(Keys([TestKey("k1", K2.private).public()], 3, 60), second, 120.0)
    assert renamed.keys[0] is not first.keys[0] and renamed.by_id["k1"] == [renamed.keys[0]]
