"""Remember pod specs that were found to be in order: thousands of pods are made from one template.

A spec is known by its JSON, without the host name, in which the pods of an Indexed Job or a StatefulSet differ.
"""

from __future__ import annotations

from typing import Final

import orjson
from cachetools import FIFOCache

from haru.kube.meta import Obj

_MOST: Final = 256
_MOST_BYTES: Final = 16 * 1024
"""Larger specs are rare, and are not kept."""


class KnownSpecs:
    """Specs of which one thing was found out."""

    def __init__(self) -> None:
        self._keys: FIFOCache[bytes, None] = FIFOCache(_MOST)

    def key(self, spec: Obj, *rest: bool) -> bytes | None:
        """How a spec is known, with what else matters; None for one that is not kept."""
        try:
            key = orjson.dumps((rest, {name: value for name, value in spec.items() if name != "hostname"}))
        except orjson.JSONEncodeError:
            return None  # a manifest that no server has read yet
        return key if len(key) <= _MOST_BYTES else None

    def __contains__(self, key: bytes | None) -> bool:
        return key in self._keys

    def add(self, key: bytes | None) -> None:
        """Remember a spec; of very many the oldest is forgotten, and found out again."""
        if key is not None:
            self._keys[bytes(bytearray(key))] = None  # orjson's own bytes keep the memory of its buffer
