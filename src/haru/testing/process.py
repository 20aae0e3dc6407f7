"""One cluster that runs beside a test in a process of its own: its work does not hold up the test's.

The first one makes a process that has read all of Haru, of which every cluster is then a fork: it begins as quickly as
a thread would.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import signal
import threading
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from haru.testing.cluster import CALL_SECONDS, Cluster
from haru.testing.local import START_SECONDS, LocalCluster

if TYPE_CHECKING:
    from haru.embedded.options import UpOptions

_PRELOADED = ["__main__", "haru.testing.inside", "haru.cel.selectors", "uvicorn.protocols.http.httptools_impl", "yaml"]
_SLACK_SECONDS = 5.0


class ProcessCluster(Cluster):
    """A cluster in a process, which ends with this one."""

    def __init__(self, directory: Path, options: UpOptions) -> None:
        super().__init__(directory)
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, directory, options), name="haru", daemon=True)
        self._theirs = theirs
        self._lock = threading.Lock()
        self._url = ""

    def start(self) -> Self:
        """Bring it up. Raises what `haru up` would say: OptionError, OSError."""
        self._process.start()
        self._theirs.close()
        try:
            self._url = self._answer(START_SECONDS)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Take it down."""
        self._connection.close()
        if self._process.pid is not None:
            self._process.join(CALL_SECONDS)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()

    @property
    def url(self) -> str:
        """The address of the API server."""
        return self._url

    def _ask(self, name: str, *arguments: Any, within: float = CALL_SECONDS) -> Any:
        with self._lock:
            with contextlib.suppress(OSError):  # that nobody is there any more is seen when the answer is read
                self._connection.send((name, arguments, within))
            return self._answer(within + _SLACK_SECONDS)

    def _answer(self, within: float) -> Any:
        if not self._connection.poll(within):
            raise TimeoutError(f"the cluster has not answered within {within:g} s")
        try:
            answer, error = self._connection.recv()
        except (EOFError, ConnectionError):
            self._process.join(CALL_SECONDS)
            raise RuntimeError(f"the cluster has ended, with the exit code {self._process.exitcode}") from None
        if error is not None:
            raise error
        return answer


def _serve(connection: Connection, directory: Path, options: UpOptions) -> None:
    """Run a cluster until nobody is at the other end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever runs the tests is told, and lets go of the connection
    cluster = LocalCluster(directory, options)
    if not _answered(connection, lambda: cluster.start().url):
        return
    with contextlib.suppress(EOFError, OSError):
        while True:
            name, arguments, within = connection.recv()
            _answered(connection, partial(cluster._ask, name, *arguments, within=within))
    cluster.stop()


def _answered(connection: Connection, work: Callable[[], Any]) -> bool:
    """Send what some work comes to, or what it raises; whether it came to something."""
    try:
        answer = work()
    except Exception as error:
        connection.send((None, _portable(error)))
        return False
    connection.send((answer, None))
    return True


def _portable(error: Exception) -> Exception:
    """The error as another process can have it."""
    told = RuntimeError(f"{type(error).__name__}: {error}")
    try:
        copy = pickle.loads(pickle.dumps(error))
    except Exception:
        return told
    return error if str(copy) == str(error) else told
