"""Forgetting etcd's history once in a while, by one replica at a time.

Who moves the compaction key on has the turn: it compacts to the revision that was the newest when the key moved before,
so at least one interval of history always stays. The key is Kubernetes' own, and counts for kube-apiservers on the same
etcd too. Source: k8s.io/apiserver `storage/etcd3`, the compactor, as behaviour.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from haru.proto import etcd_pb2 as rpc
from haru.storage.etcd import messages
from haru.storage.etcd.connection import CallError, Connection
from haru.storage.interface import StoreError

KEY = b"compact_rev_key"
INTERVAL_SECONDS = 300.0
_LOG = logging.getLogger("haru.storage")


class Compactor:
    """One replica's part in it."""

    def __init__(self, connection: Connection, compact: Callable[[int], Awaitable[None]]) -> None:
        self._connection = connection
        self._compact = compact
        self._version = 0
        self._revision = 0

    async def run(self, interval: float) -> None:
        """Take part every `interval` seconds, for as long as the store is open."""
        while True:
            await asyncio.sleep(interval)
            try:
                await self.turn()
            except StoreError as error:
                _LOG.warning("the history of etcd could not be compacted: %s", error)

    async def turn(self) -> int:
        """Move the key on and compact, unless another replica did since the last turn; to which revision, or 0."""
        request = rpc.TxnRequest(
            compare=[messages.key_has_version(KEY, self._version)],
            success=[messages.put(KEY, b"%d" % self._revision)],
            failure=[messages.read(KEY)],
        )
        answer = await self._connection.call(messages.TXN, request, again=False)
        last, self._revision = self._revision, answer.header.revision
        if not answer.succeeded:
            found = answer.responses[0].response_range.kvs
            self._version = found[0].version if found else 0
            return 0
        self._version += 1
        if not last:
            return 0
        await self._compact(last)
        return last


async def compact(connection: Connection, revision: int) -> None:
    """Forget what is older than `revision`; that it is forgotten already is no fault."""
    try:
        await connection.call(messages.COMPACT, rpc.CompactionRequest(revision=revision), again=True)
    except CallError as error:
        if error.code != "OUT_OF_RANGE":
            raise
