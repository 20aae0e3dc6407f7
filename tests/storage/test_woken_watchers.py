"""A change wakes the watchers of its namespace, its key and its indexed values, and nobody who watches misses one."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from haru.storage.history import FEW_WATCHERS
from haru.storage.interface import Compacted, Delete, Event, Put, Record, Watch
from haru.storage.memory import MemoryStore
from virtual_time import run

SPACES = ("a", "b", "c")


class Follower:
    """A watcher that reads what there is, dawdles for a moment, and waits again."""

    def __init__(self, watch: Watch, dawdles: float = 0.0) -> None:
        self.watch, self.dawdles = watch, dawdles
        self.seen: list[int] = []
        self.turns = 0

    async def run(self) -> None:
        while not self.watch.closed:
            self.turns += 1
            self.seen += [event.revision for event in self.watch.pending()]
            await asyncio.sleep(self.dawdles)
            await self.watch.wait(3600.0)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("followers", [2, FEW_WATCHERS])
def test_every_watcher_hears_of_all_changes_below_its_prefix(seed: int, followers: int) -> None:
    async def play() -> None:
        random, store = Random(seed), MemoryStore(clock=asyncio.get_running_loop().time)
        prefixes = ["pods/", *(f"pods/{space}/" for space in SPACES), *(f"pods/{space}/1" for space in SPACES)]
        found = {
            prefix: [Follower(store.watch(prefix, 0), random.choice((0.0, 0.01, 0.2))) for _ in range(followers)]
            for prefix in prefixes
        }
        everyone = [follower for group in found.values() for follower in group]
        tasks = [asyncio.create_task(follower.run()) for follower in everyone]
        expected: dict[str, list[int]] = {prefix: [] for prefix in prefixes}
        there: set[str] = set()
        for _ in range(300):
            key = f"pods/{random.choice(SPACES)}/{random.randrange(3)}"
            gone = key in there and random.random() < 0.3
            await store.transact(Delete(key) if gone else Put(key, b"x"))
            (there.discard if gone else there.add)(key)
            for prefix in prefixes:
                if key.startswith(prefix):
                    expected[prefix].append(store.revision)
            await asyncio.sleep(random.choice((0, 0, 0.001, 0.05)))
        await asyncio.sleep(60.0)
        for prefix, group in found.items():
            assert all(follower.seen == expected[prefix] for follower in group), prefix
        for follower in everyone:
            follower.watch.close()
        await asyncio.gather(*tasks)

    run(play())


def value_of(record: Record) -> str:
    return record.value.decode()


def concerns(event: Event, prefix: str, value: str) -> bool:
    """Whether what changed has the value, or had it."""
    return event.key.startswith(prefix) and any(each and value_of(each) == value for each in (event.old, event.new))


@pytest.mark.parametrize("seed", range(5))
def test_watcher_and_list_of_a_value_see_what_a_look_at_every_record_sees(seed: int) -> None:
    """Objects change their value, go and come back; some watch from the past, some leave and come again."""

    async def play() -> None:
        random, store = Random(seed), MemoryStore(clock=asyncio.get_running_loop().time)
        store.index("pods", value_of)
        changes: list[Event] = []
        asked = [(prefix, value) for prefix in ("pods/", "pods/a/") for value in ("", "n1", "n2")]
        everyone: list[tuple[Follower, asyncio.Task[None], tuple[str, str], int]] = []

        def follow(which: tuple[str, str], since: int) -> None:
            follower = Follower(store.watch(which[0], since, which[1]), random.choice((0.0, 0.01, 0.2)))
            everyone.append((follower, asyncio.create_task(follower.run()), which, since))

        for number in range(400):
            key = f"pods/{random.choice(SPACES)}/{random.randrange(4)}"
            gone = await store.get(key) is not None and random.random() < 0.3
            value = random.choice((b"", b"n1", b"n2"))
            changes += await store.transact(Delete(key) if gone else Put(key, value))
            if not number % 10:
                follow(random.choice(asked), random.randrange(1, store.revision + 1))
            if not number % 40:
                everyone[random.randrange(len(everyone))][0].watch.close()
            revision = random.choice((0, random.randrange(2, store.revision + 1)))
            for prefix, value_asked in asked:
                every = (await store.range(prefix, revision=revision)).records
                found = await store.range(prefix, value=value_asked, revision=revision)
                assert found.records == [record for record in every if value_of(record) == value_asked]
                newest = (await store.range(prefix, value=value_asked)).records
                first = await store.range(prefix, value=value_asked, limit=2)
                assert first.records == newest[:2] and first.remaining == max(0, len(newest) - 2)
                if newest:
                    assert (await store.range(prefix, value=value_asked, after=newest[0].key)).records == newest[1:]
            await asyncio.sleep(random.choice((0, 0, 0.001, 0.05)))
        await asyncio.sleep(60.0)
        for follower, _, which, since in everyone:
            wanted = [event.revision for event in changes if event.revision > since and concerns(event, *which)]
            assert follower.seen == (wanted[: len(follower.seen)] if follower.watch.closed else wanted), which
            follower.watch.close()
        await asyncio.gather(*(task for _, task, _, _ in everyone))
        assert list(store._buckets["pods"].places) == [""], "what nobody follows is not kept"

    run(play())


def test_changes_of_other_values_wake_nobody_and_cut_nobody_off() -> None:
    async def play() -> None:
        store = MemoryStore(clock=asyncio.get_running_loop().time)
        store.index("pods", value_of)
        quiet = Follower(store.watch("pods/", 0, "quiet"))
        task = asyncio.create_task(quiet.run())
        for number in range(30_000):
            await store.transact(Put(f"pods/a/{number % 10}", b"busy"))
            if not number % 50:
                await asyncio.sleep(0)
        await store.transact(Put("pods/a/1", b"quiet"))
        await asyncio.sleep(1.0)
        await store.transact(Put("pods/a/1", b"busy"))
        await asyncio.sleep(1.0)
        assert quiet.seen == [store.revision - 1, store.revision] and quiet.turns == 3
        with pytest.raises(Compacted):
            store.watch("pods/", 1, "quiet")
        quiet.watch.close()
        await task

    run(play())


@pytest.mark.parametrize(
    ("quiet_place", "busy"),
    [("pods/quiet/", "pods/busy/"), ("pods/quiet/one", "pods/quiet/two"), ("pods/one", "pods/")],
)
def test_watcher_of_a_quiet_namespace_or_key_is_neither_woken_by_others_nor_cut_off(
    quiet_place: str, busy: str
) -> None:
    async def play() -> None:
        store = MemoryStore(clock=asyncio.get_running_loop().time)
        quiet = Follower(store.watch(quiet_place, 0))
        task = asyncio.create_task(quiet.run())
        for number in range(30_000):
            await store.transact(Put(f"{busy}{number % 10}", b"x"))
            if not number % 50:
                await asyncio.sleep(0)
        with pytest.raises(Compacted):
            store.watch(quiet_place, 1)
        await store.transact(Put(f"{quiet_place.removesuffix('one')}one", b"x"))
        await asyncio.sleep(1.0)
        assert quiet.seen == [store.revision] and quiet.turns < 30_000 / 200
        quiet.watch.close()
        await task

    run(play())
