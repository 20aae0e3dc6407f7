"""`--encryption-provider-config-automatic-reload`: a configuration that changes on the disk is taken over as it runs.

The file is looked at each minute. A new one is read, its KMS plugins have to be well, and only then it takes the place
of the old one; with anything wrong the old one stays, and the next look tries again.
Source: kube-apiserver's encryption configuration controller, as behaviour.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from pathlib import Path

from haru.apiserver.encryption.config import FLAG, EncryptionError, load_encryption
from haru.event_loop import cancelled
from haru.storage import SealError, Sealing

LOOK_SECONDS = 60.0
_PREFIX = "apiserver_encryption_config_controller_"
_LOG = logging.getLogger("haru.apiserver")


class Reloader:
    """Keeps the encryption at rest of one server to what its file says."""

    def __init__(self, path: Path, sealing: Sealing) -> None:
        self._path, self._sealing = path, sealing
        self._results: Counter[str] = Counter()
        self._times: dict[str, float] = {}
        self._refused = ""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.create_task(self._run(), name="haru apiserver: encryption configuration")

    async def stop(self) -> None:
        """Look no more."""
        task, self._task = self._task, None
        if task is not None:
            await cancelled(task)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except Exception:
                _LOG.exception("%s: %s was not read", FLAG, self._path)

    async def look(self) -> bool:
        """Take the file over if it has changed; whether it was."""
        try:
            found = await asyncio.to_thread(load_encryption, self._path)
            if found.digest == self._sealing.digest:
                self._refused = ""
                return False
            await self._sealing.become(found)
        except (EncryptionError, SealError) as error:
            self._count("failure")
            if str(error) != self._refused:
                self._refused = str(error)
                _LOG.error("the new encryption configuration is not taken, the old one stays in use: %s", error)
            return False
        self._refused = ""
        self._count("success")
        _LOG.info("%s: %s has changed and is in use", FLAG, self._path)
        return True

    def _count(self, result: str) -> None:
        self._results[result] += 1
        self._times[result] = time.time()

    def lines(self) -> list[str]:
        """The counters, as Kubernetes names them."""
        own = f'apiserver_id_hash="{self._sealing.server_digest}"'
        total, last = f"{_PREFIX}automatic_reloads_total", f"{_PREFIX}automatic_reload_last_timestamp_seconds"
        return [
            f"# HELP {total} Encryption configurations that were taken over, or could not be.",
            f"# TYPE {total} counter",
            *(f'{total}{{{own},status="{result}"}} {count}' for result, count in sorted(self._results.items())),
            f"# HELP {last} When an encryption configuration was taken over, or could not be, last.",
            f"# TYPE {last} gauge",
            *(f'{last}{{{own},status="{result}"}} {at:.3f}' for result, at in sorted(self._times.items())),
        ]
