"""Flows of UDP that the kernel still leads to endpoints which have gone.

A flow of UDP has no end: while its client sends, the kernel sends its packets where the first one went. Such flows are
deleted, so that the next packet meets the rules.
Source: kube-proxy's reconciliation of conntrack entries, as behaviour; the kernel's ctnetlink.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from haru.service_proxy.services import Endpoint

Destination = tuple[str, int]
"""Address (empty: any address of this node) and port that clients send to."""
_NETFILTER: Final = 12
_GET, _DELETE = 0x101, 0x102
_REQUEST, _ACK, _DUMP = 0x1, 0x4, 0x300
_ERROR, _DONE = 2, 3
_ORIGINAL, _REPLY, _ID = 1, 2, 12
_IP, _PROTOCOL = 1, 2
_SOURCE = {4: 1, 6: 3}
_DESTINATION = {4: 2, 6: 4}
_NUMBER, _SOURCE_PORT, _DESTINATION_PORT = 1, 2, 3
_UDP: Final = 17
_SECONDS: Final = 10.0


class Flow(NamedTuple):
    """Where a flow's client sends, who answers, and what names the flow to the kernel."""

    destination: Endpoint
    answers: Endpoint
    name: bytes


def stale_flows(flows: Iterator[Flow], served: Mapping[Destination, frozenset[Endpoint]]) -> Iterator[Flow]:
    """The flows to these destinations that none of their endpoints answers."""
    for flow in flows:
        for destination in ((flow.destination.address, flow.destination.port), ("", flow.destination.port)):
            endpoints = served.get(destination)
            if endpoints is not None and flow.answers not in endpoints:
                yield flow
                break


def delete_stale_flows(family: int, served: Mapping[Destination, frozenset[Endpoint]]) -> int:
    """Delete the flows of UDP (family 4 or 6) that lead elsewhere than to these endpoints; how many. Raises OSError."""
    number = socket.AF_INET if family == 4 else socket.AF_INET6
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETFILTER) as kernel:
        kernel.bind((0, 0))
        kernel.settimeout(_SECONDS)
        found = list(stale_flows(_flows(kernel, number, family), served))
        for flow in found:
            kernel.send(_message(_DELETE, _REQUEST | _ACK, number, flow.name))
            for _ in _answers(kernel):
                pass
    return len(found)


def _message(kind: int, flags: int, family: int, body: bytes = b"") -> bytes:
    payload = struct.pack("BBH", family, 0, 0) + body
    return struct.pack("=IHHII", 16 + len(payload), kind, flags, 0, 0) + payload


def _flows(kernel: socket.socket, number: int, family: int) -> Iterator[Flow]:
    kernel.send(_message(_GET, _REQUEST | _DUMP, number))
    for payload in _answers(kernel):
        fields = _attributes(payload[4:])
        original, reply = _attributes(fields[_ORIGINAL]), _attributes(fields[_REPLY])
        protocol = _attributes(original[_PROTOCOL])
        if protocol[_NUMBER][0] != _UDP:
            continue
        name = _attribute(_ORIGINAL, fields[_ORIGINAL], nested=True) + _attribute(_ID, fields[_ID])
        yield Flow(
            _endpoint(original, _DESTINATION[family], _DESTINATION_PORT),
            _endpoint(reply, _SOURCE[family], _SOURCE_PORT),
            name,
        )


def _endpoint(tuple_: Mapping[int, bytes], address: int, port: int) -> Endpoint:
    packed, ports = _attributes(tuple_[_IP])[address], _attributes(tuple_[_PROTOCOL])
    return Endpoint(str(ipaddress.ip_address(packed)), int.from_bytes(ports[port], "big"))


def _answers(kernel: socket.socket) -> Iterator[bytes]:
    """The messages up to the last one, without their heads. Raises OSError, but for a flow that has just ended."""
    while True:
        data = kernel.recv(1 << 20)
        while data:
            length, kind = struct.unpack_from("=IH", data)
            payload, data = data[16:length], data[(length + 3) & ~3 :]
            if kind in (_ERROR, _DONE):
                error = -struct.unpack_from("=i", payload)[0]
                if error > 0 and error != 2:
                    raise OSError(error, "conntrack")
                return
            yield payload


def _attributes(data: bytes) -> dict[int, bytes]:
    found = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        found[kind & 0x3FFF] = data[4:length]
        data = data[(length + 3) & ~3 :]
    return found


def _attribute(kind: int, value: bytes, *, nested: bool = False) -> bytes:
    head = struct.pack("=HH", 4 + len(value), kind | (0x8000 if nested else 0))
    return head + value + bytes(-len(value) % 4)
