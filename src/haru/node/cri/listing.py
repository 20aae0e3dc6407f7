"""Lists of everything that a runtime has, as streams where it has them, in one message where it has not (KEP-5825).

A unary list ends at what fits into one message (16 MiB: about 11,000 containers); a stream of batches does not. What is
answered is always the whole list: a stream that fails, or takes longer than a call may, is an error and never a shorter
list, because whoever takes a part for the whole believes that the rest has ended.

Whether a runtime streams is found out per kind of list, from the status UNIMPLEMENTED before anything was received. It
is asked again after the connection was lost: another runtime may answer then.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from google.protobuf.message import Message

from haru.node.cri.errors import CriError
from haru.proto import MessageError, decode
from haru.proto import cri_pb2 as cri

_log = logging.getLogger(__name__)
Item = TypeVar("Item", bound=Message)
RUNTIME = "/runtime.v1.RuntimeService/"
IMAGES = "/runtime.v1.ImageService/"


@dataclass(frozen=True, slots=True)
class Listing(Generic[Item]):
    """One kind of list: its two calls, which have equal requests and answers, and what is in an answer."""

    operation: str
    """As metrics call it."""
    unary: str
    streaming: str
    items: Callable[[bytes], Iterable[Item]]
    """Those of one answer. Raises `MessageError`."""
    key: Callable[[Item], str]
    """What tells two items apart."""


CONTAINERS = Listing(
    "list_containers",
    RUNTIME + "ListContainers",
    RUNTIME + "StreamContainers",
    lambda answer: decode(cri.ListContainersResponse, answer).containers,
    lambda item: item.id,
)
SANDBOXES = Listing(
    "list_podsandbox",
    RUNTIME + "ListPodSandbox",
    RUNTIME + "StreamPodSandboxes",
    lambda answer: decode(cri.ListPodSandboxResponse, answer).items,
    lambda item: item.id,
)
CONTAINER_STATS = Listing(
    "list_container_stats",
    RUNTIME + "ListContainerStats",
    RUNTIME + "StreamContainerStats",
    lambda answer: decode(cri.ListContainerStatsResponse, answer).stats,
    lambda item: item.attributes.id,
)
IMAGE_LIST = Listing(
    "list_images",
    IMAGES + "ListImages",
    IMAGES + "StreamImages",
    lambda answer: decode(cri.ListImagesResponse, answer).images,
    lambda item: item.id,
)


class Calls(Protocol):
    """The way to the runtime; both raise `CriError`, and are bounded in time as a whole."""

    async def unary(self, operation: str, method: str, request: bytes) -> bytes:
        """One answer."""

    def stream(self, operation: str, method: str, request: bytes) -> AsyncIterator[bytes]:
        """Answers until the runtime ends them well."""


class Lister:
    """Lists of one runtime, as streams with `streaming` (the gate CRIListStreaming)."""

    def __init__(self, calls: Calls, *, streaming: bool) -> None:
        self._calls = calls
        self._streaming = streaming
        self._unsupported: set[str] = set()
        self.failures: dict[str, int] = {}
        """How many streams failed, by operation."""
        self.fallbacks: dict[str, int] = {}
        """How many lists were asked for as a stream first and came in one message, by operation."""

    def forget(self) -> None:
        """The connection was lost or another version answers: find out anew what it can do."""
        self._unsupported.clear()

    def streams(self, listing: Listing[Item]) -> bool:
        """Whether the next list of this kind is requested as a stream."""
        return self._streaming and listing.operation not in self._unsupported

    async def all(self, listing: Listing[Item], request: Message) -> list[Item]:
        """Everything of a kind that the filter of `request` lets through, complete. Raises `CriError`."""
        sent = request.SerializeToString()
        found = await self._streamed(listing, sent) if self.streams(listing) else None
        if found is None:
            found = self._read(listing, await self._calls.unary(listing.operation, listing.unary, sent))
        return _once(listing, found)

    async def _streamed(self, listing: Listing[Item], request: bytes) -> list[Item] | None:
        """The collected stream; None where the runtime has none."""
        found: list[Item] = []
        heard = False
        try:
            async for answer in self._calls.stream(listing.operation, listing.streaming, request):
                heard = True
                found += self._read(listing, answer)
        except CriError as error:
            if error.code == "UNIMPLEMENTED" and not heard:
                self._unsupported.add(listing.operation)
                self.fallbacks[listing.operation] = self.fallbacks.get(listing.operation, 0) + 1
                _log.info("%s: the runtime has no streams of it: lists come in one message", listing.operation)
                return None
            self.failures[listing.operation] = self.failures.get(listing.operation, 0) + 1
            raise CriError(
                error.operation, error.code, f"{error.details} (after {len(found)} items, which are dropped)"
            ) from error
        return found

    def _read(self, listing: Listing[Item], answer: bytes) -> list[Item]:
        try:
            return list(listing.items(answer))
        except MessageError as error:
            self.failures[listing.operation] = self.failures.get(listing.operation, 0) + 1
            raise CriError(listing.operation, "INTERNAL", f"the runtime's answer can not be read: {error}") from error


def _once(listing: Listing[Item], found: list[Item]) -> list[Item]:
    """Each item once, as it came last; duplicates are logged."""
    by_key = {listing.key(item): item for item in found}
    if len(by_key) == len(found):
        return found
    _log.warning("%s: the runtime listed %d items twice", listing.operation, len(found) - len(by_key))
    return list(by_key.values())
