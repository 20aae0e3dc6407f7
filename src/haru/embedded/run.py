"""`haru up` from start to stop.

Order of the start: lock, identity, store, API server, listener; then controllers, scheduler and nodes at once. It is
ready when every part has its first lists and every node is Ready with its devices published. The stop goes the
other way round. If a part fails the whole process stops and says why: a cluster without a scheduler is no cluster.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
import tempfile
from pathlib import Path

from haru.embedded.cluster import EmbeddedCluster
from haru.embedded.errors import OptionError
from haru.embedded.lock import DirectoryLock
from haru.embedded.options import UpOptions, default_data_dir
from haru.embedded.process import first, loop_factory, seconds_since_start
from haru.event_loop import cancelled, stop_event
from haru.garbage import postpone_collection, resume_collection
from haru.loop_lag import LoopLag
from haru.scheduler.debugger import dump_on_signal

_log = logging.getLogger(__name__)


def run_cluster(options: UpOptions) -> int:
    """Runs the cluster until SIGINT or SIGTERM; returns the exit status."""
    # What a start allocates lives until the end: looking for garbage in it again and again only costs time.
    postpone_collection()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_run(options))


def _data_directory(options: UpOptions) -> Path:
    if options.state.ephemeral:
        return Path(tempfile.mkdtemp(prefix="haru-"))
    directory = options.state.data_dir or default_data_dir()
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise _not_writable(directory, error) from None
    return directory


def _hold(lock: DirectoryLock, directory: Path) -> None:
    try:
        lock.acquire()
    except OSError as error:
        raise _not_writable(directory, error) from None


def _not_writable(directory: Path, error: OSError) -> OptionError:
    return OptionError(f"--data-dir: {directory}: {error.strerror}; name a directory that can be written")


async def _run(options: UpOptions) -> int:
    # Signals first: whatever is made from here on is also put away.
    stop = stop_event()
    measuring = asyncio.create_task(LoopLag().run())
    directory = _data_directory(options)
    lock = DirectoryLock(directory)
    try:
        _hold(lock, directory)
        return await _serve(options, directory, lock, stop)
    finally:
        await cancelled(measuring)
        lock.release()
        if options.state.ephemeral:
            shutil.rmtree(directory, ignore_errors=True)


async def _serve(options: UpOptions, directory: Path, lock: DirectoryLock, stop: asyncio.Event) -> int:
    cluster = EmbeddedCluster(options, directory)
    dump_on_signal(lambda: cluster.scheduler.dump() if cluster.scheduler is not None else None)
    try:
        # A signal during the start ends it too.
        if not await first(cluster.start(), stop):
            return 0
        lock.describe(kubeconfig=str(cluster.kubeconfig), address=cluster.address)
        resume_collection()
        seconds = seconds_since_start()
        where = options.state.write_kubeconfig or cluster.kubeconfig
        print(f"haru is ready after {seconds:.1f} s at {cluster.address}, kubeconfig {where}", flush=True)
        if cluster.notes:
            print("\n".join(cluster.notes), file=sys.stderr)
        await first(cluster.failed(), stop)
        return 0
    finally:
        await cluster.stop()
