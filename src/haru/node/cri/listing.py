"""Lists of everything that a runtime has, as streams where it has them, in one message where it has not (KEP-5825).

A unary list ends at what fits into one message (16 MiB: about 11,000 containers); a stream of batches does not. What is
answered is always the whole list: a stream that fails, or takes longer than a call may, is an error and never a shorter
list, because whoever takes a part for the whole believes that the rest has ended.

Whether a runtime streams is found out per kind of list, from the status UNIMPLEMENTED before anything was received. It
is asked again after the connection was lost: another runtime may answer then.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from haru.messages import Message
from haru.node.cri.containers import Container, ContainerFilter
from haru.node.cri.errors import CriError
from haru.node.cri.images import Image, ImageFilter
from haru.node.cri.messages import PodSandbox, PodSandboxFilter
from haru.node.cri.stats import ContainerStats, ContainerStatsFilter
from haru.protobuf import WireError, chunk, fields

_log = logging.getLogger(__name__)
Item = TypeVar("Item", bound=Message)
RUNTIME = "/runtime.v1.RuntimeService/"
IMAGES = "/runtime.v1.ImageService/"


@dataclass(frozen=True, slots=True)
class Listing(Generic[Item]):
    """One kind of list: its two calls, and what is in it. Filters and items are field 1 of their messages."""

    operation: str
    """As metrics call it."""
    unary: str
    streaming: str
    item: type[Item]
    filter: type[Message]
    key: Callable[[Item], str]
    """What tells two items apart."""


CONTAINERS = Listing(
    "list_containers",
    RUNTIME + "ListContainers",
    RUNTIME + "StreamContainers",
    Container,
    ContainerFilter,
    lambda item: item.id,
)
SANDBOXES = Listing(
    "list_podsandbox",
    RUNTIME + "ListPodSandbox",
    RUNTIME + "StreamPodSandboxes",
    PodSandbox,
    PodSandboxFilter,
    lambda item: item.id,
)
CONTAINER_STATS = Listing(
    "list_container_stats",
    RUNTIME + "ListContainerStats",
    RUNTIME + "StreamContainerStats",
    ContainerStats,
    ContainerStatsFilter,
    lambda item: item.attributes.id if item.attributes is not None else "",
)
IMAGE_LIST = Listing(
    "list_images", IMAGES + "ListImages", IMAGES + "StreamImages", Image, ImageFilter, lambda item: item.id
)


class Calls(Protocol):
    """The way to the runtime; both raise `CriError`, and are bounded in time as a whole."""

    async def unary(self, operation: str, method: str, request: bytes) -> bytes:
        """One answer."""

    def stream(self, operation: str, method: str, request: bytes) -> AsyncIterator[bytes]:
        """Answers until the runtime ends them well."""


class Lister:
    """Lists of one runtime. With `streaming` (the gate CRIListStreaming) it is asked for streams."""

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
        """Whether the next list of this kind is asked for as a stream."""
        return self._streaming and listing.operation not in self._unsupported

    async def all(self, listing: Listing[Item], wanted: Message | None = None) -> list[Item]:
        """Everything of a kind that the filter `wanted` lets through, complete. Raises `CriError`."""
        request = chunk(1, wanted.encode(), always=True) if wanted is not None else b""
        found = await self._streamed(listing, request) if self.streams(listing) else None
        if found is None:
            found = self._read(listing, await self._calls.unary(listing.operation, listing.unary, request))
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
            return [listing.item.decode(_bytes(value)) for number, value in fields(answer) if number == 1]
        except WireError as error:
            self.failures[listing.operation] = self.failures.get(listing.operation, 0) + 1
            raise CriError(listing.operation, "INTERNAL", f"the runtime's answer can not be read: {error}") from error


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise WireError("an integer where an item is due")
    return value


def _once(listing: Listing[Item], found: list[Item]) -> list[Item]:
    """Each item once, as it came last: a runtime that breaks this part of the contract is told of."""
    by_key = {listing.key(item): item for item in found}
    if len(by_key) == len(found):
        return found
    _log.warning("%s: the runtime listed %d items twice", listing.operation, len(found) - len(by_key))
    return list(by_key.values())
