"""One process runs a fleet of a name: it holds a Lease as long as it runs, and another one is refused meanwhile."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from haru.client.api import ApiClient
from haru.client.leases import Candidate, ElectionTimes, LeaderElector
from haru.clock import SYSTEM, Clock
from haru.kube.errors import StatusError, suppress_status
from haru.kube.names import is_dns1123_subdomain, short_hash
from haru.simulated_nodes.fleet_nodes import FleetError
from haru.simulated_nodes.nodes import LEASES

_log = logging.getLogger(__name__)
_NAMESPACE: Final = "kube-system"
_TIMES: Final = ElectionTimes(lease=8.0, renew_deadline=6.0, retry_period=2.0)


def lease_name(fleet: str) -> str:
    """Return the name of a fleet's Lease; a fleet's name may have letters that it may not."""
    name = f"haru-fleet-{fleet}"
    return f"haru-fleet-{short_hash(fleet)}" if is_dns1123_subdomain(name) else name


class FleetLease:
    """The Lease of one fleet for this process. Where Leases may not be read, nobody is refused."""

    def __init__(
        self,
        client: ApiClient,
        fleet: str,
        *,
        clock: Clock = SYSTEM,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client, self._fleet = client, fleet
        identity = f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4()}"
        self._candidate = Candidate(_NAMESPACE, lease_name(fleet), identity)
        self._elector = LeaderElector(client, self._candidate, _TIMES, clock=clock, sleep=sleep)
        self._readable = True

    async def take(self) -> None:
        """Take the Lease; waits up to 8 s where its holder may be dead. Raises FleetError if that one renews it."""
        with suppress_status(404):
            try:
                await self._client.get(LEASES, self._candidate.name, _NAMESPACE)
            except StatusError as error:
                if error.code != 403:
                    raise
                _log.warning("whether another process runs the fleet %s is not known: %s", self._fleet, error)
                self._readable = False
                return
        await self._acquire()

    async def keep(self) -> None:
        """Renew until cancelled. Raises FleetError if another process runs the fleet by now.

        While the server is away nobody else begins, and what runs goes on.
        """
        if not self._readable:
            await asyncio.Event().wait()
        while True:
            await self._elector.renew()
            await self._acquire()

    async def give_up(self) -> None:
        """Let another process begin at once."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_TIMES.retry_period):
                await self._elector.release()

    async def _acquire(self) -> None:
        if not await self._elector.acquire_unless_renewed():
            raise FleetError(
                f"--name: Forbidden: the fleet {self._fleet} is run by {self._elector.leader} "
                f"(Lease {self._elector.lease_path}): stop that process, or take another --name and --name-prefix"
            )


async def delete_lease(client: ApiClient, fleet: str) -> None:
    """Delete a fleet's Lease, where that is allowed."""
    with suppress_status(403, 404):
        await client.delete(LEASES, lease_name(fleet), _NAMESPACE)
