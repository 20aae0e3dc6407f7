"""The store that several API servers share: etcd, with each server's own view of it in memory.

etcd decides and keeps. Each server follows one watch on everything under the prefix, so it sees all changes in order,
its own too, and serves reads and watches from memory as the embedded store does. A change is acknowledged once it has
come back by that watch: what a writer was told it can read. Before a read that must not be stale `progress` asks etcd
for its newest revision, once for all who ask at a time, and waits until the view has come that far.

The view starts in the past, as far as etcd remembers (but not without bound), and is brought up to the present by the
watch: after a restart a client's watch goes on where it was. When the watch has fallen behind what etcd remembers, the
view is read anew, and cursors in it learn that they are too old.
Source: KEP 2340 (consistent reads from cache), k8s.io/apiserver `storage/etcd3`, as behaviour.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from haru.event_loop import cancelled
from haru.proto import etcd_pb2 as rpc
from haru.storage.ciphers import KeysAway, SealError
from haru.storage.damage import Check, damage_in, damaged_value, no_check
from haru.storage.etcd import messages
from haru.storage.etcd.compaction import INTERVAL_SECONDS, Compactor, compact
from haru.storage.etcd.connection import CallError, Connection, Credentials, Stream
from haru.storage.etcd.progress import Progress
from haru.storage.etcd.values import to_bytes, to_record
from haru.storage.history import bucket_of
from haru.storage.interface import Compacted, CompareFailed, Delete, Event, Page, Put, Record, StoreError
from haru.storage.memory import MemoryStore, check_named_once
from haru.storage.sealing import KEYS_SECONDS, Sealing, no_sealing

REPLAYED_REVISIONS = 10_000
"""How far into the past the view starts, at most: as much as has to be gone through at every start."""
PAGE = 1_000
LOADS = 5
START_SECONDS = 120.0
"""How long going through the past may take at a start."""
TICK = "haru-progress"
"""The key that is written to have the watch move on, where asking for progress can not be relied on."""
_RETRY_SECONDS = (0.05, 2.0)
_LOG = logging.getLogger("haru.storage")


@dataclass(frozen=True, slots=True)
class EtcdStoreOptions:
    """Where the store is in etcd, and how it is kept; `compaction_seconds` 0: this server compacts nothing."""

    prefix: str = "/registry"
    credentials: Credentials = field(default_factory=Credentials)
    compaction_seconds: float = INTERVAL_SECONDS


class EtcdStore(MemoryStore):
    """A store in etcd, at one or more endpoints (`https://HOST:PORT`) of one cluster."""

    shared = True

    def __init__(
        self,
        endpoints: Sequence[str],
        options: EtcdStoreOptions | None = None,
        *,
        sealing: Sealing | None = None,
        check: Check = no_check,
    ) -> None:
        super().__init__()
        options = options or EtcdStoreOptions()
        self._check = check
        self._connection = Connection(endpoints, options.credentials)
        self._prefix = f"{options.prefix.rstrip('/')}/".encode()
        self._sealing = sealing or no_sealing()
        self._keys_patience = 0.0
        self._stuck = False  # the next message of the watch can not be read, whichever stream brings it
        self._compactor = Compactor(self._connection, self.compact)
        self._compaction_seconds = options.compaction_seconds
        self._progress = Progress(self._newest_revision, self._nudge, lambda: self._revision)
        self._stream: Stream | None = None
        self._unreadable: asyncio.Future[None] | None = None
        self._tells_progress = False
        self._tasks: list[asyncio.Task[None]] = []

    # --- life

    async def start(self) -> None:
        """Connect, read the state, and follow it; raises `StoreError`."""
        self._connection.open()
        self._sealing.changed = self._make_stale
        self._keys_patience = KEYS_SECONDS
        try:
            await self._sealing.start()
            status = await self._connection.call(messages.STATUS, rpc.StatusRequest(), again=True)
            self._tells_progress = tells_progress(status.version)
            await self._come_up()
        except BaseException:
            await self.stop()
            raise
        # From here on nobody waits for keys: who follows the changes tries again by itself.
        self._keys_patience = 0.0
        if self._compaction_seconds:
            self._run("compaction", self._compactor.run(self._compaction_seconds))

    async def _come_up(self) -> None:
        """From the past to the present. What can not be read any more of the past (its key is gone) is left out."""
        try:
            await self._load(REPLAYED_REVISIONS)
            await self._reach_the_present()
        except (CallError, KeysAway):
            raise
        except StoreError as error:
            _LOG.warning("the history of before the start is left out: %s", error)
            await self._load(0)
            await self._reach_the_present()

    async def _reach_the_present(self) -> None:
        """Begin to follow; what can not be read on the way ends it, a lost connection does not."""
        self._unreadable = asyncio.get_running_loop().create_future()
        following = self._run("watch", self._follow())
        newest = await self._newest_revision()
        present = asyncio.ensure_future(self._progress.wait(newest, START_SECONDS))
        try:
            await asyncio.wait({present, self._unreadable}, return_when=asyncio.FIRST_COMPLETED)
            if self._unreadable.done():
                self._unreadable.result()
            await present
        except BaseException:
            await cancelled(following)
            raise
        finally:
            present.cancel()
            self._unreadable.cancel()

    async def stop(self) -> None:
        """End all watches and give the connections up."""
        tasks, self._tasks = self._tasks, []
        await cancelled(*tasks)
        self._progress.stop()
        await self._connection.close()
        await self._sealing.stop()
        await super().stop()

    def _run(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=f"haru etcd: {name}")
        self._tasks.append(task)
        return task

    async def _load(self, back: int) -> None:
        """Take the state of so many revisions ago as the view; the watch brings what has happened since."""
        for _ in range(LOADS):
            newest = (await self._range(self._key(TICK), count_only=True)).header.revision
            try:
                await self._load_at(await self._oldest(max(self._revision, newest - back), newest))
                return
            except Compacted:
                continue  # meanwhile
        raise StoreError("etcd compacts its history faster than the state can be read")

    async def _oldest(self, oldest: int, newest: int) -> int:
        """The first revision from `oldest` on that etcd remembers."""
        probe = oldest
        while oldest < newest:
            try:
                await self._range(self._key(TICK), revision=probe, count_only=True)
                newest = probe
            except Compacted:
                oldest = probe + 1
            probe = (oldest + newest) // 2
        return newest

    async def _load_at(self, revision: int) -> None:
        state: dict[str, list[Record]] = {}
        key, end = self._prefix, _end(self._prefix)
        while True:
            answer = await self._range(key, end, limit=PAGE, revision=revision)
            await self._get_keys(answer.kvs)
            for pair in answer.kvs:
                name = self._name(pair.key)
                if name != TICK:
                    state.setdefault(bucket_of(name), []).append(self._checked_record(name, pair))
            if len(answer.kvs) >= answer.count:
                break
            key = answer.kvs[-1].key + b"\0"
        self._compacted = revision
        for name in state.keys() | self._buckets.keys():
            self._bucket(name).replace(state.get(name, ()), revision)
        self._revision = max(self._revision, revision)

    def _name(self, key: bytes) -> str:
        try:
            return key[len(self._prefix) :].decode()
        except UnicodeDecodeError:
            raise StoreError(f"etcd holds something else under {key!r}: name another --etcd-prefix") from None

    def _key(self, name: str) -> bytes:
        return self._prefix + name.encode()

    async def _get_keys(self, pairs: Iterable[rpc.KeyValue]) -> None:
        """Ask those who have keys for what is needed to open values. Raises KeysAway."""
        if self._sealing.outside:
            items = ((bucket_of(self._name(pair.key)), pair.value) for pair in pairs)
            await self._sealing.prepare(items, self._keys_patience)

    def _record(self, name: str, pair: rpc.KeyValue) -> Record:
        kept, stale = self._sealing.open(bucket_of(name), pair.key.decode(), pair.value)
        return to_record(name, kept, pair.mod_revision, stale=stale)

    def _checked_record(self, name: str, pair: rpc.KeyValue) -> Record:
        """As `_record`; raises `StoreError` for a value that is damaged. Costs reading it whole: for starts only."""
        record = self._record(name, pair)
        problem = damage_in(record, self._check)
        if problem:
            raise damaged_value(pair.key.decode(), problem)
        return record

    # --- following

    async def _follow(self) -> None:
        """Keep the view up to date, whatever happens to connections."""
        shortest, longest = _RETRY_SECONDS
        pause = shortest
        while True:
            try:
                await self._follow_once()
            except Compacted as error:
                _LOG.warning("the watch on etcd fell behind (%s): the state is read anew", error)
                await self._reload()
            except StoreError as error:
                if not self.failing:
                    pause = shortest
                    _LOG.warning("the watch on etcd is interrupted: %s", error)
                self._stuck = isinstance(error, SealError)
                self.failing = True
                if not isinstance(error, CallError) and self._unreadable is not None and not self._unreadable.done():
                    self._unreadable.set_exception(error)
            except Exception:
                # A view that no longer follows must not look like one that does.
                _LOG.exception("the watch on etcd failed")
                self.failing = True
            await asyncio.sleep(pause)
            pause = min(pause * 2, longest)

    async def _reload(self) -> None:
        try:
            await self._load(REPLAYED_REVISIONS)
        except StoreError as error:
            _LOG.warning("the state can not be read from etcd: %s", error)
            self.failing = True

    async def _follow_once(self) -> None:
        """Publish what one stream tells; ends by raising."""
        stream = await self._connection.watch()
        try:
            start = self._revision + 1
            create = rpc.WatchCreateRequest(
                key=self._prefix, range_end=_end(self._prefix), start_revision=start, progress_notify=True
            )
            await stream.write(rpc.WatchRequest(create_request=create))
            while True:
                answer = await stream.read()
                if answer.canceled:
                    if answer.compact_revision:
                        raise Compacted(start, answer.compact_revision)
                    self._connection.leave()
                    raise StoreError(f"etcd canceled the watch: {answer.cancel_reason or 'it does not say why'}")
                if answer.created:
                    self._stream, self.failing = stream, self._stuck
                else:
                    await self._get_keys(event.kv for event in answer.events if event.type != rpc.Event.DELETE)
                    self._take(answer)
                    if self._stuck:
                        self._stuck = self.failing = False
        finally:
            self._stream = None
            stream.close()

    def _take(self, answer: rpc.WatchResponse) -> None:
        """Publish the changes of one message, which holds whole revisions."""
        at = self._clock()
        touched = set()
        named = [(self._name(event.kv.key), event.type, event.kv) for event in answer.events]
        is_starting = self._unreadable is not None and not self._unreadable.done()
        read = self._checked_record if is_starting else self._record
        # All are read before one is published: after an error the same message comes again.
        changes = [
            (name, pair.mod_revision, None if kind == rpc.Event.DELETE else read(name, pair))
            for name, kind, pair in named
            if name != TICK
        ]
        for name, revision, new in changes:
            bucket = self._bucket(bucket_of(name))
            old = bucket.records.get(name)
            if old is not None or new is not None:
                bucket.publish(Event(name, revision, old, new), at)
                touched.add(bucket)
        # Without changes the message tells how far this watch has come.
        newest = answer.events[-1].kv.mod_revision if answer.events else answer.header.revision
        self._revision = max(self._revision, newest)
        for bucket in touched:
            bucket.wake()
        self._progress.reached(self._revision)

    # --- progress

    async def progress(self) -> None:
        """Return when everything is visible that was acknowledged, by any server, before the call."""
        await self._progress.catch_up()

    async def _newest_revision(self) -> int:
        seen = self._revision
        newest = (await self._range(self._key(TICK), count_only=True)).header.revision
        if newest < seen:
            self.failing = True
            raise StoreError(
                f"etcd is at revision {newest} and was at {seen} before: it was restored from a backup; "
                "restart this server"
            )
        return newest

    async def _nudge(self) -> None:
        """Have the watch tell how far it has come: changes that are not under the prefix do not move it on."""
        if self._stream is None:
            return
        if self._tells_progress:
            await self._stream.write(rpc.WatchRequest(progress_request=rpc.WatchProgressRequest()))
            return
        tick = rpc.TxnRequest(success=[messages.put(self._key(TICK), to_bytes(b"", None))])
        await self._connection.call(messages.TXN, tick, again=True)

    # --- reading

    async def range(
        self, prefix: str, *, value: str | None = None, after: str = "", limit: int = 0, revision: int = 0
    ) -> Page:
        """Records under `prefix` in key order; of revisions that the view does not remember, from etcd itself."""
        try:
            return await super().range(prefix, value=value, after=after, limit=limit, revision=revision)
        except Compacted:
            start, end = self._key(prefix), _end(self._key(prefix))
            if after:
                start = max(start, self._key(after) + b"\0")
            answer = await self._range(start, end, limit=limit, revision=revision)
            await self._get_keys(answer.kvs)
            records = [self._record(self._name(pair.key), pair) for pair in answer.kvs]
            bucket = self._bucket(bucket_of(prefix))
            chosen = [record for record in records if bucket.has_value(record, value)]
            return Page(chosen, revision, answer.count - len(records))

    async def _range(
        self, start: bytes, end: bytes = b"", *, limit: int = 0, revision: int = 0, count_only: bool = False
    ) -> rpc.RangeResponse:
        request = rpc.RangeRequest(key=start, range_end=end, limit=limit, revision=revision, count_only=count_only)
        try:
            return await self._connection.call(messages.RANGE, request, again=True)
        except CallError as error:
            if error.code == "OUT_OF_RANGE":
                raise Compacted(revision, max(self._compacted, revision + 1)) from error
            raise

    # --- writing

    async def transact(self, *operations: Put | Delete) -> Sequence[Event]:
        """Make all changes or none. Raises `CompareFailed`, or `StoreError`, after which they may have been made."""
        check_named_once(operations)
        for operation in operations:
            if isinstance(operation, Put):
                self._sealing.check(bucket_of(operation.key))
        request = self._request(operations, await self._leases(operations))
        answer = await self._connection.call(messages.TXN, request, again=False)
        revision = answer.header.revision
        await self._progress.wait(revision)
        if answer.succeeded:
            return [self._event(operation, revision) for operation in operations]
        read = [response.response_range.kvs for response in answer.responses]
        await self._get_keys(found[0] for found in read if found)
        for operation, found in zip(operations, read, strict=True):
            actual = self._record(operation.key, found[0]) if found else None
            revision = actual.revision if actual else 0
            wrong = operation.expected is not None and operation.expected != revision
            if wrong or (isinstance(operation, Delete) and not revision):
                raise CompareFailed(operation.key, actual)
        raise StoreError("etcd refused a transaction whose conditions all held")

    async def _leases(self, operations: Sequence[Put | Delete]) -> dict[int, int]:
        """A new lease of etcd for each time that keys shall live. One that no key has any more ends by itself."""
        wanted = {operation.lives for operation in operations if isinstance(operation, Put) and operation.lives}
        return {
            seconds: (await self._connection.call(messages.LEASE, rpc.LeaseGrantRequest(TTL=seconds), again=True)).ID
            for seconds in wanted
        }

    def _request(self, operations: Sequence[Put | Delete], leases: Mapping[int, int]) -> rpc.TxnRequest:
        comparisons: list[rpc.Compare] = []
        then: list[rpc.RequestOp] = []
        for operation in operations:
            key = self._key(operation.key)
            if operation.expected is not None:
                comparisons.append(messages.key_unchanged(key, operation.expected))
            if isinstance(operation, Put):
                kept = to_bytes(operation.value, operation.place)
                sealed = self._sealing.seal(bucket_of(operation.key), key.decode(), kept)
                then.append(messages.put(key, sealed, leases.get(operation.lives, 0)))
            else:
                then.append(messages.delete(key))
                if operation.expected is None:
                    comparisons.append(messages.key_exists(key))
        reads = [messages.read(self._key(operation.key)) for operation in operations]
        return rpc.TxnRequest(compare=comparisons, success=then, failure=reads)

    def _event(self, operation: Put | Delete, revision: int) -> Event:
        """The event of a change of our own, as the watch has brought it."""
        log = self._bucket(bucket_of(operation.key)).log
        index = bisect_left(log, revision, key=lambda event: event.revision)
        while index < len(log) and log[index].revision == revision:
            if log[index].key == operation.key:
                return log[index]
            index += 1
        # The view was read anew meanwhile, or is late.
        new = None
        if isinstance(operation, Put):
            new = to_record(operation.key, to_bytes(operation.value, operation.place), revision)
        return Event(operation.key, revision, None, new)

    async def compact(self, revision: int) -> None:
        """Forget the history up to and including `revision`, for all servers."""
        revision = min(revision, self._revision)
        await compact(self._connection, revision)
        await super().compact(revision)


def _end(prefix: bytes) -> bytes:
    """The smallest key that is larger than all that start with `prefix` (which ends with a slash)."""
    return prefix[:-1] + bytes((prefix[-1] + 1,))


def tells_progress(version: str) -> bool:
    """Whether an etcd answers questions for progress in order with the changes: from 3.4.25 and 3.5.8 on."""
    try:
        major, minor, patch = (int(part) for part in version.partition("-")[0].split("."))
    except ValueError:
        return False
    found = (major, minor, patch)
    return found >= (3, 5, 8) or (3, 4, 25) <= found < (3, 5, 0)
