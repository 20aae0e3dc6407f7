"""A scheduler that is started again whenever it ends, for `bindings_compared`, and what is done to it meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.processes import started

from haru.client.api import ApiClient
from haru.kube.errors import StatusError
from haru.kube.kinds import known_kind

LEASES = known_kind("coordination.k8s.io/v1", "Lease")
NAMESPACE, LEASE = "kube-system", "scheduler"
ELECTION = {
    "leaderElect": True,
    "resourceNamespace": NAMESPACE,
    "resourceName": LEASE,
    "leaseDuration": "4s",
    "renewDeadline": "3s",
    "retryPeriod": "1s",
}
DISTURBANCES = ("none", "kill", "lease")
"""`kill`: it is killed while it binds, twice. `lease`: somebody else takes its Lease for a while."""
_AT = (1.5, 5.0)
_FAST_ENDS, _FAST_SECONDS = 5, 1.0


class KeptScheduler:
    """The scheduler of a cluster. `is_broken`: it ended at once, several times."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._command, self._log = command, log
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self.is_broken = False

    @contextlib.contextmanager
    def running(self) -> Iterator[KeptScheduler]:
        """Keep it running until the block is left."""
        thread = threading.Thread(target=self._keep)
        thread.start()
        try:
            yield self
        finally:
            self._stopped = True
            if self._process:
                self._process.terminate()
            thread.join()

    def _keep(self) -> None:
        fast = 0
        while not self._stopped and fast < _FAST_ENDS:
            began = time.monotonic()
            with started(self._command, self._log) as self._process:
                self._process.wait()
            fast = fast + 1 if time.monotonic() - began < _FAST_SECONDS else 0
        self.is_broken = not self._stopped

    async def leads(self, api: ApiClient) -> None:
        """Wait until it has its Lease."""
        while not self.is_broken:
            with contextlib.suppress(StatusError):
                if (await api.get(LEASES, LEASE, NAMESPACE))["spec"].get("holderIdentity"):
                    return
            await asyncio.sleep(0.1)

    async def disturb(self, api: ApiClient, how: str) -> None:
        """Kill it, or take its Lease, at its times."""
        for before, at in zip((0.0, *_AT), _AT, strict=False):
            await asyncio.sleep(at - before)
            if how == "kill" and self._process:
                self._process.kill()
        if how == "lease":
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            held = {"holderIdentity": "other", "leaseDurationSeconds": 3, "renewTime": now, "acquireTime": now}
            await api.patch(LEASES, LEASE, {"spec": held}, NAMESPACE, "merge")
