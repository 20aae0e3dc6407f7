"""Decode slices with one interner, which is made anew once it holds many values of slices that are gone."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from weakref import WeakValueDictionary

import orjson

from haru.engine.dra.model.interning import Interner, decode_slice
from haru.engine.dra.model.model import Slice
from haru.kube.meta import Obj

_FOREVER = 20_000


class SliceDecoder:
    """Decodes the slices of one inventory."""

    def __init__(self) -> None:
        self.interner = Interner()
        self.is_stale = False
        """Whether the interner holds values of slices that are gone."""
        self._size_when_made = 0

    def __len__(self) -> int:
        return len(self.interner)

    def decode(self, obj: Obj) -> Slice:
        """Decode a ResourceSlice."""
        return decode_slice(obj, self.interner)

    def renew_if_stale(self, published: Iterable[Slice]) -> None:
        """Let go of values that no slice holds any more, by interning anew what the slices hold."""
        if not self.is_stale or len(self.interner) <= 2 * self._size_when_made + _FOREVER:
            return
        self.interner = Interner()
        for item in published:
            self.interner.adopt(item)
        self._size_when_made = len(self.interner)
        self.is_stale = False


class SharedSliceDecoder(SliceDecoder):
    """Decodes the slices of several inventories: equal slices, which are the same object in all of them, once."""

    def __init__(self) -> None:
        super().__init__()
        self._known: WeakValueDictionary[bytes, Slice] = WeakValueDictionary()

    def decode(self, obj: Obj) -> Slice:
        """Decode a ResourceSlice, or return what was decoded of an equal one."""
        try:
            text = orjson.dumps([(obj.get("metadata") or {}).get("name"), obj.get("spec")])
        except orjson.JSONEncodeError:  # no JSON: somebody made the object up
            return super().decode(obj)
        key = blake2b(text, digest_size=24).digest()
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = super().decode(obj)
        return found

    def renew_if_stale(self, published: Iterable[Slice]) -> None:
        """Let go of values that no slice of any inventory holds."""
        super().renew_if_stale(self._known.values())
