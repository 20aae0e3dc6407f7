"""One cluster that runs beside a test in a thread of this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from haru.testing.cluster import CALL_SECONDS, Cluster
from haru.testing.virtual_time import VirtualTimeLoop

if TYPE_CHECKING:
    from haru.embedded.options import UpOptions
    from haru.testing.inside import Inside

T = TypeVar("T")

START_SECONDS = 60.0


class LocalCluster(Cluster):
    """A cluster in a thread."""

    def __init__(self, directory: Path, options: UpOptions) -> None:
        super().__init__(directory)
        self._options = options
        self._loop = VirtualTimeLoop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="haru", daemon=True)
        self._inside: Inside | None = None

    def start(self) -> Self:
        """Bring it up. Raises what `haru up` would say: OptionError, OSError."""
        from haru.testing.inside import Inside

        self._thread.start()
        try:
            self._inside = self._run(Inside.begin(self._loop, self._options, self.directory), START_SECONDS)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Take it down."""
        if self._loop.is_closed():
            return
        try:
            if self._inside is not None:
                self._run(self._inside.end(), CALL_SECONDS)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    @property
    def url(self) -> str:
        """The address of the API server."""
        return self._started.url

    @property
    def _started(self) -> Inside:
        if self._inside is None:
            raise RuntimeError("the cluster is not started")
        return self._inside

    def _run(self, work: Coroutine[Any, Any, T], timeout: float) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(timeout)

    def _ask(self, name: str, *arguments: Any, within: float = CALL_SECONDS) -> Any:
        return self._run(getattr(self._started, name)(*arguments), within)
