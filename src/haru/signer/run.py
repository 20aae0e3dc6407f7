"""`haru signer serve` from start to stop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from haru.event_loop import cancelled
from haru.signer.files import FileKeys, KeyStoreError
from haru.signer.hsm import HsmKeys, Module
from haru.signer.listener import SignerListener
from haru.signer.schedule import Pace, signing
from haru.signer.service import Holder, Service
from haru.stop import stop_event

LOOK_SECONDS = 1.0
"""Between two looks at whether a key's time has come."""
_LOG = logging.getLogger("haru.signer")


@dataclass(frozen=True, slots=True)
class SignerOptions:
    """What a signer is told. Keys are in `key_dir` or in `module`; `rotate_every` is in seconds, 0 for never."""

    socket: str
    key_dir: Path | None = None
    module: Module | None = None
    generate: bool = False
    algorithm: str = "ES256"
    pace: Pace = field(default_factory=Pace)
    rotate_every: int = 0
    issuers: Sequence[str] = ()
    mode: int = 0o600
    uids: Sequence[int] = ()


def run_signer(options: SignerOptions) -> int:
    """Serves until SIGINT or SIGTERM; returns the exit status. Raises `InputError`."""
    return asyncio.run(_run(options))


async def _run(options: SignerOptions) -> int:
    stop = stop_event()
    holder, files = _holder(options)
    listener = SignerListener(options.socket, options.mode, options.uids)
    keeper: asyncio.Task[None] | None = None
    try:
        await listener.open(Service(holder, options.pace, options.issuers).handlers())
        if files is not None:
            keeper = asyncio.create_task(_keep(files, options), name="haru signer: keys")
        print(f"haru signer is ready at {options.socket}", flush=True)
        await stop.wait()
        return 0
    finally:
        if keeper is not None:
            await cancelled(keeper)
        await listener.close()
        if isinstance(holder, HsmKeys):
            holder.close()


def _holder(options: SignerOptions) -> tuple[Holder, FileKeys | None]:
    if options.module is not None:
        return HsmKeys(options.module), None
    assert options.key_dir is not None
    files = FileKeys(options.key_dir)
    if options.generate:
        files.set_pace(options.pace)
        if signing(files.records(), time.time()) is None:
            files.add(options.algorithm, int(time.time()))
    elif signing(files.records(), time.time()) is None:
        raise KeyStoreError(f"{options.key_dir}: no key in it signs: make one with --generate")
    files.set_pace(options.pace)
    files.keys(time.time())  # what cannot be read is told now
    return files, files


async def _keep(files: FileKeys, options: SignerOptions) -> None:
    """Remove keys that are over and, if asked to, make new ones in time."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        now = time.time()
        try:
            for key_id in files.remove_over(now):
                _LOG.info("the key %s is over and removed", key_id)
            newest = max((r.signs_from for r in files.records() if not r.excluded), default=0)
            if options.rotate_every and newest + options.rotate_every - options.pace.ahead <= now:
                record = files.add(options.algorithm, int(now))
                _LOG.info("the key %s is published, and signs from %d on", record.key_id, record.signs_from)
        except KeyStoreError as error:
            _LOG.error("%s", error)
