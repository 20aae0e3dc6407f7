"""What is derived from the records under a prefix, kept in step with them by a cursor in their history."""

from __future__ import annotations

from collections.abc import Callable

from haru.storage.interface import Compacted, Record, Store, Watch


class Reflector:
    """Tells of all records under a prefix, and then of their changes, whenever it is asked to."""

    def __init__(
        self,
        store: Store,
        prefix: str,
        begin: Callable[[], None],
        change: Callable[[Record | None, Record | None], None],
    ) -> None:
        """`begin` forgets everything; `change` is given the record of before, if any, and that of now."""
        self._store, self._prefix = store, prefix
        self._begin, self._change = begin, change
        self._watch: Watch | None = None

    async def take_in(self) -> bool:
        """Take in what has changed since the last call, or, the first time, everything; whether there was anything."""
        try:
            events = self._watch.pending() if self._watch is not None else None
        except Compacted:
            events = None
        if events is None:
            await self._read()
            return True
        try:
            for event in events:
                self._change(event.old, event.new)
        except BaseException:
            # The changes behind this one would never be known: whoever asks next reads everything.
            self._forget()
            raise
        return bool(events)

    def _forget(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    async def _read(self) -> None:
        self._forget()
        page = await self._store.range(self._prefix)
        self._begin()
        for record in page.records:
            self._change(None, record)
        self._watch = self._store.watch(self._prefix, page.revision)
