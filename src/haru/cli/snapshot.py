"""Back up the state of a `haru up`, running or stopped, or restore it into a data directory.

`haru snapshot save FILE` copies the state of the running server without an interruption. With --data-dir it copies the
state of that directory, through the server that runs on it if there is one. `haru snapshot restore FILE --data-dir DIR`
creates DIR, which must be empty or absent. The state of `haru apiserver` is in etcd, which has its own backups.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
from pathlib import Path

from haru.cli.connection import add_connection_arguments, connect, connection_words, told_as_usage
from haru.cli.main import UsageError
from haru.cli.number_flags import number
from haru.errors import ClusterError
from haru.kube.names import counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `haru snapshot`."""
    add_connection_arguments(parser)
    parser.add_argument("action", choices=("save", "restore"), help="action")
    parser.add_argument("file", type=Path, metavar="FILE", help="backup file: save writes it, restore reads it")
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="data directory to back up, or to create")
    parser.add_argument(
        "--bump-revision",
        type=number,
        metavar="N",
        help="restore: increase revisions by this number, beyond any that clients have seen (default 1000000000)",
    )


def run(options: argparse.Namespace) -> int:
    """Saves or restores."""
    from haru.storage import StoreError

    try:
        return _save(options) if options.action == "save" else _restore(options)
    except StoreError as error:
        raise UsageError(str(error)) from error


def _save(options: argparse.Namespace) -> int:
    from haru.embedded.lock import holder_of
    from haru.files import new_private_file
    from haru.storage import snapshots

    file: Path = options.file
    if options.bump_revision is not None:
        raise UsageError("--bump-revision: only for restore")
    if file.exists():
        raise UsageError(f"{file} exists already: name another file")
    directory: Path | None = options.data_dir
    if directory is not None and options.kubeconfig is not None:
        raise UsageError("--data-dir and --kubeconfig: name one of them")
    partial = file.with_name(f".{file.name}.partial")
    try:
        partial.unlink(missing_ok=True)
        new_private_file(partial)
        try:
            running = (holder_of(directory) or {}).get("kubeconfig") if directory is not None else None
            if directory is not None and running is None:
                _copy_idle(directory, partial)
            else:
                if running is not None:
                    options.kubeconfig, options.context = Path(running), None
                asyncio.run(_fetch(options, partial))
            found = snapshots.check(partial)
            os.link(partial, file)  # not over one that somebody else has made meanwhile
        finally:
            partial.unlink(missing_ok=True)
    except ClusterError:
        raise
    except OSError as error:
        named = file if error.filename in (None, str(partial)) else error.filename
        raise UsageError(f"{named}: {error.strerror or error}") from error
    print(f"{counted(found.objects, 'object')} as of revision {found.revision} saved to {file} ({found.size} bytes)")
    return 0


def _copy_idle(directory: Path, to: Path) -> None:
    """The state of a directory on which no server runs, and none may begin to meanwhile."""
    from haru.embedded.lock import AlreadyRunningError, DirectoryLock
    from haru.storage import snapshots
    from haru.storage.sqlite_file import copy_database

    state = directory / snapshots.NAME
    if not state.is_file():
        raise UsageError(f"--data-dir: {directory}: holds no {snapshots.NAME}: name the data directory of a haru up")
    lock = DirectoryLock(directory)
    try:
        lock.acquire()
    except AlreadyRunningError as error:
        raise UsageError(f"--data-dir: {error}; or wait until it is ready and try again") from error
    try:
        copy_database(state, to)
        snapshots.complete(to)
    finally:
        lock.release()


async def _fetch(options: argparse.Namespace, to: Path) -> None:
    from haru.apiserver.observability import PATH
    from haru.kube.errors import StatusError

    async with connect(options, "haru-snapshot") as client:
        with told_as_usage(client), to.open("wb") as file:
            try:
                async for chunk in client.stream_raw(PATH):
                    file.write(chunk)
            except StatusError as error:
                if error.code != 404:
                    raise
                remedy = "ask its owner for a backup of its etcd, or save what Haru reads of it with haru capture"
                raise UsageError(f"{client.server}: only a server of Haru gives out snapshots: {remedy}") from None
            file.flush()
            os.fsync(file.fileno())


def _restore(options: argparse.Namespace) -> int:
    from haru.embedded.lock import AlreadyRunningError, DirectoryLock
    from haru.storage import snapshots

    directory: Path | None = options.data_dir
    if directory is None:
        raise UsageError("restore needs --data-dir: the directory to make")
    if words := connection_words(options):
        raise UsageError(f"{words[0]}: only for save")
    if not options.file.is_file():
        raise UsageError(f"{options.file}: no such file")
    bump = snapshots.BUMP if options.bump_revision is None else options.bump_revision
    existed = directory.exists()
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = DirectoryLock(directory)
        lock.acquire()
    except AlreadyRunningError as error:
        raise UsageError(f"--data-dir: {error}") from error
    except OSError as error:
        raise UsageError(f"--data-dir: {directory}: {error.strerror}") from error
    try:
        found = snapshots.restore(options.file, directory, bump)
    except BaseException:
        lock.release()
        _leave_as_it_was(directory, existed)
        raise
    lock.release()
    print(f"{counted(found.objects, 'object')} as of revision {found.revision} restored to {directory}")
    return 0


def _leave_as_it_was(directory: Path, existed: bool) -> None:
    """Take back the empty lock file, and the directory if it was made for this."""
    from haru.embedded.lock import LOCK_NAME

    if not existed:
        with contextlib.suppress(OSError):
            (directory / LOCK_NAME).unlink(missing_ok=True)
            directory.rmdir()
