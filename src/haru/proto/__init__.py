"""Messages of the gRPC services that Haru serves or calls.

The `.proto` files here are definitions of ours: what Haru reads or writes, under the published names and numbers.
`hatch_build.py` generates the module `NAME_pb2` from each of them when Haru is built or installed; git ignores these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from google.protobuf.message import Message

AnyMessage = TypeVar("AnyMessage", bound="Message")


class MessageError(ValueError):
    """Bytes that are not the message that was expected."""


def decode(kind: type[AnyMessage], data: bytes) -> AnyMessage:
    """Read a message; fields that its definition lacks are kept and have no effect. Raises `MessageError`."""
    from google.protobuf.message import DecodeError

    try:
        return kind.FromString(data)
    except DecodeError:
        raise MessageError(f"the bytes are no {kind.DESCRIPTOR.name}") from None
