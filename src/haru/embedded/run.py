"""`haru up` from start to stop.

Order of the start: lock, identity, store, API server, listener; then controllers, scheduler and nodes at once. It is
ready when every part has its first lists and every node is Ready with its devices published. The stop goes the
other way round. If a part fails the whole process stops and says why: a cluster without a scheduler is no cluster.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from haru.embedded.data_directory import default_data_dir
from haru.embedded.errors import OptionError
from haru.embedded.launch import Lifeline, fork_all
from haru.embedded.lock import DirectoryLock
from haru.embedded.options import Processes, UpOptions
from haru.embedded.part import needed_parts
from haru.embedded.process import loop_factory, seconds_since_start
from haru.embedded.supervised import SupervisedParts
from haru.event_loop import cancelled
from haru.garbage import postpone_collection, resume_collection
from haru.loop_lag import LoopLag
from haru.stop import stop_event, unless_stopped

if TYPE_CHECKING:
    from haru.embedded.cluster import EmbeddedCluster

GROUPS: Final = (("scheduler",), ("controllers", "nodes"), ("pages",))
"""The parts that have processes of their own, if any have; those of a group share one."""
CORES_TO_SPLIT = 4
_log = logging.getLogger(__name__)


def run_cluster(options: UpOptions) -> int:
    """Runs the cluster until SIGINT or SIGTERM; returns the exit status."""
    # What a start allocates lives until the end: looking for garbage in it again and again only costs time.
    postpone_collection()
    lifeline = Lifeline()
    try:
        supervised = _supervised(options, lifeline)
        with asyncio.Runner(loop_factory=loop_factory(serves=True)) as runner:
            return runner.run(_run(options, supervised))
    finally:
        lifeline.close()


def _supervised(options: UpOptions, lifeline: Lifeline) -> list[SupervisedParts]:
    """Start the processes of the parts, before this one imports the API server."""
    if not has_processes(options.processes, usable_cores()):
        return []
    needed = needed_parts(options)
    groups = [names for group in GROUPS if (names := [name for name in group if name in needed])]
    children = fork_all(groups, lifeline)
    return [SupervisedParts(names, options, lifeline, child) for names, child in zip(groups, children, strict=True)]


def has_processes(processes: Processes, cores: float) -> bool:
    """Whether the parts have processes of their own: if each has a core, unless the options say (ADR 24)."""
    return processes == "split" or (processes == "auto" and cores >= CORES_TO_SPLIT)


def usable_cores() -> float:
    """The cores that this process may use: those that it may run on, and what its cgroup gives it of them."""
    cores = float(len(os.sched_getaffinity(0)))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return min(cores, int(quota) / int(period))
    except (OSError, ValueError):  # no cgroup of version 2, or no quota
        return cores


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


async def _run(options: UpOptions, supervised: Sequence[SupervisedParts]) -> int:
    # Signals first: whatever is made from here on is also put away.
    stop = stop_event()
    measuring = asyncio.create_task(LoopLag().run())
    directory = _data_directory(options)
    lock = DirectoryLock(directory)
    try:
        _hold(lock, directory)
        return await _serve(options, directory, lock, stop, supervised)
    finally:
        await cancelled(measuring)
        lock.release()
        if options.state.ephemeral:
            shutil.rmtree(directory, ignore_errors=True)


async def _serve(
    options: UpOptions,
    directory: Path,
    lock: DirectoryLock,
    stop: asyncio.Event,
    supervised: Sequence[SupervisedParts],
) -> int:
    from haru.embedded.cluster import EmbeddedCluster

    cluster = EmbeddedCluster(options, directory, supervised=supervised)
    _dump_on_signal(cluster, supervised)
    try:
        # A signal during the start ends it too.
        await unless_stopped(cluster.start(), stop)
        if stop.is_set():
            return 0
        lock.describe(kubeconfig=str(cluster.kubeconfig), address=cluster.address)
        resume_collection()
        seconds = seconds_since_start()
        where = options.state.write_kubeconfig or cluster.kubeconfig
        print(f"haru is ready after {seconds:.1f} s at {cluster.address}, kubeconfig {where}", flush=True)
        if cluster.notes:
            print("\n".join(cluster.notes), file=sys.stderr)
        await unless_stopped(cluster.failed(), stop)
        return 0
    finally:
        await cluster.stop()


def _dump_on_signal(cluster: EmbeddedCluster, supervised: Sequence[SupervisedParts]) -> None:
    for parts in supervised:
        if "scheduler" in parts.names:
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, parts.dump)
            return
    from haru.scheduler.debugger import dump_on_signal

    dump_on_signal(cluster.dump)
