"""One event on its way to the places where it is told, and what gets lost on that way."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from haru.apiserver.audit.policy import REQUEST, REQUEST_RESPONSE
from haru.kube.meta import Obj

HEAD = b'{"kind":"Event","apiVersion":"audit.k8s.io/v1",'
"""How an event begins that stands for itself; in a list it is left out."""
_TRUNCATED = {"audit.k8s.io/truncated": "true"}
_OWN_BYTES = 1024
"""About what an event costs beside the bodies that it carries."""
_COMPLAIN_SECONDS = 60.0
_BODIES = ("requestObject", "responseObject")
_RENDERING = threading.Lock()
_LOG = logging.getLogger("haru.apiserver")


@dataclass(slots=True)
class Entry:
    """An event, and the bodies that are still to be put into it; several places may share it."""

    event: Obj
    level: int
    omits_managed_fields: bool = False
    request_body: bytes = b""
    parse: Callable[[bytes], Any] = orjson.loads
    response_body: bytes = b""
    size: int = field(init=False)
    """About how much memory it takes, in bytes."""
    _json: bytes = field(init=False, default=b"")

    def __post_init__(self) -> None:
        self.size = _OWN_BYTES + len(self.request_body) + len(self.response_body)

    def json(self, most: int = 0) -> bytes | None:
        """The event as JSON, whole; with a bound of so many bytes without its bodies, or None if that is no help.

        For threads that have time: bodies are read here, once for all places.
        """
        with _RENDERING:
            if not self._json:
                self._json = self._whole()
        if not most or len(self._json) <= most:
            return self._json
        if self.level < REQUEST:
            return None
        bare = {name: value for name, value in self.event.items() if name not in _BODIES}
        bare["annotations"] = {**bare.get("annotations", {}), **_TRUNCATED}
        short = orjson.dumps(bare)
        return short if len(short) <= most else None

    def _whole(self) -> bytes:
        event = self.event
        if self.request_body:
            self._take_request(event)
        if self.response_body and self.level >= REQUEST_RESPONSE:
            event["responseObject"] = orjson.Fragment(self.response_body)
            if self.omits_managed_fields and b'"managedFields"' in self.response_body:
                event["responseObject"] = _bare(orjson.loads(self.response_body))
        return orjson.dumps(event)

    def _take_request(self, event: Obj) -> None:
        try:
            body = self.parse(self.request_body)
        except Exception:
            return  # it was refused for that, as the answer says
        if event["verb"] == "create" and isinstance(body, dict):
            # The name of what is created stands in the body alone.
            name = (body.get("metadata") or {}).get("name")
            if isinstance(name, str) and name and not event.get("objectRef", {}).get("name"):
                # A new reference: the event of an earlier stage has the old one, and may yet be read.
                event["objectRef"] = {**event.get("objectRef", {}), "name": name}
        if self.level >= REQUEST:
            event["requestObject"] = _bare(body) if self.omits_managed_fields else body


def _bare(value: Any) -> Any:
    """An object, or a list's items, without managedFields."""
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("metadata"), dict):
        value = {**value, "metadata": {n: v for n, v in value["metadata"].items() if n != "managedFields"}}
    if isinstance(value.get("items"), list):
        value = {**value, "items": [_bare(item) for item in value["items"]]}
    return value


class Losses:
    """Events that did not get to one place, by what they failed at; told in the server's log once a minute."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._told = -_COMPLAIN_SECONDS
        self.counts: Counter[str] = Counter()

    def add(self, plugin: str, count: int, why: str) -> None:
        """So many more are missing; for all threads."""
        with self._lock:
            self.counts[plugin] += count
            now = time.monotonic()
            if now - self._told < _COMPLAIN_SECONDS:
                return
            self._told = now
            total = self.counts.total()
        _LOG.error("%s is incomplete: %d events are missing so far: %s", self._place, total, why)
