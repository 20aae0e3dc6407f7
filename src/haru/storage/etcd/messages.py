"""The calls of etcd's API v3 that a store makes, and what transactions are put together from.

Source: etcd's public `rpc.proto` and `kv.proto`: KV (Range, Txn, Compact), Watch, Lease, Maintenance (Status).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message

from haru.proto import etcd_pb2 as rpc

Answer = TypeVar("Answer", bound=Message)


@dataclass(frozen=True, slots=True)
class Method(Generic[Answer]):
    """A call with one request and one answer."""

    path: str
    answer: type[Answer]


RANGE = Method("/etcdserverpb.KV/Range", rpc.RangeResponse)
TXN = Method("/etcdserverpb.KV/Txn", rpc.TxnResponse)
COMPACT = Method("/etcdserverpb.KV/Compact", rpc.CompactionResponse)
STATUS = Method("/etcdserverpb.Maintenance/Status", rpc.StatusResponse)
LEASE = Method("/etcdserverpb.Lease/LeaseGrant", rpc.LeaseGrantResponse)
WATCH = "/etcdserverpb.Watch/Watch"


def key_unchanged(key: bytes, revision: int) -> rpc.Compare:
    """That a key was last changed at `revision` (0: that there is none)."""
    return rpc.Compare(result=rpc.Compare.EQUAL, target=rpc.Compare.MOD, key=key, mod_revision=revision)


def key_exists(key: bytes) -> rpc.Compare:
    """That there is a key."""
    return rpc.Compare(result=rpc.Compare.GREATER, target=rpc.Compare.MOD, key=key, mod_revision=0)


def key_has_version(key: bytes, version: int) -> rpc.Compare:
    """That a key has been changed so many times."""
    return rpc.Compare(result=rpc.Compare.EQUAL, target=rpc.Compare.VERSION, key=key, version=version)


def put(key: bytes, value: bytes, lease: int = 0) -> rpc.RequestOp:
    """Write a key, which goes when the lease is over, if one is given."""
    return rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=value, lease=lease))


def delete(key: bytes) -> rpc.RequestOp:
    """Remove a key."""
    return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key))


def read(key: bytes) -> rpc.RequestOp:
    """Read a key."""
    return rpc.RequestOp(request_range=rpc.RangeRequest(key=key))
