"""The addresses of simulated pods: made up, and each given to one pod."""

from __future__ import annotations

import ipaddress
from typing import Final

from haru.kube.meta import Obj, uid_of

_NETWORK: Final = ipaddress.IPv4Network("10.64.0.0/10")


class PodAddresses:
    """Addresses of one network, given out in turn."""

    def __init__(self) -> None:
        self._by_uid: dict[str, str] = {}
        self._taken: set[str] = set()
        self._last = int(_NETWORK.network_address)

    def observe(self, pod: Obj) -> None:
        """The pod has the address that its status says."""
        address = (pod.get("status") or {}).get("podIP")
        if address:
            self._by_uid[uid_of(pod)] = address
            self._taken.add(address)

    def release(self, pod: Obj) -> None:
        """The pod is gone."""
        self._taken.discard(self._by_uid.pop(uid_of(pod), ""))

    def address_of(self, pod: Obj) -> str:
        """The pod's address, given to it if it has none."""
        known = self._by_uid.get(uid_of(pod))
        if known is not None:
            return known
        while True:
            self._last += 1
            if self._last >= int(_NETWORK.broadcast_address):
                self._last = int(_NETWORK.network_address) + 1
            address = str(ipaddress.IPv4Address(self._last))
            if address not in self._taken:
                self._taken.add(address)
                self._by_uid[uid_of(pod)] = address
                return address
