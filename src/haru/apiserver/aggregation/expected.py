"""Group versions whose extension API servers start soon after this server: who asks early waits for them.

Until they can be used discovery does not name them, for one that is named as stale has `kubectl api-resources` fail.
The APIServices of an earlier start, which lead to ports of then, count as little as none.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping

from haru.kube.api_services import GroupVersion, name_of
from haru.kube.meta import Obj

EXPECTED_SECONDS = 60.0
"""From the start of this server on: what has not come by then is like any other."""
WAIT_SECONDS = 10.0
"""At most for one request."""


class ExpectedServices:
    """Those that are still waited for; `changed` is called when it is another number."""

    def __init__(self, versions: tuple[GroupVersion, ...], changed: Callable[[], None]) -> None:
        self._come = {version: asyncio.Event() for version in versions}
        self._changed = changed
        self._ending: asyncio.TimerHandle | None = None

    def __contains__(self, version: GroupVersion) -> bool:
        return version in self._come

    def start(self) -> None:
        """Expect them from now on."""
        if self._come:
            self._ending = asyncio.get_running_loop().call_later(EXPECTED_SECONDS, self.stop)

    def stop(self) -> None:
        """Expect nothing more."""
        if self._ending is not None:
            self._ending.cancel()
        self.settle(lambda _: True)

    def placeholders(self) -> Mapping[GroupVersion, Obj]:
        """What stands for the APIServices until there are some."""
        return {
            (group, version): {
                "metadata": {"name": name_of(group, version)},
                "spec": {"group": group, "version": version},
            }
            for group, version in self._come
        }

    def settle(self, is_served: Callable[[GroupVersion], bool]) -> None:
        """Expect no more those that are served by now."""
        served = [version for version in self._come if is_served(version)]
        for version in served:
            self._come.pop(version).set()
        if served:
            self._changed()

    async def wait(self, version: GroupVersion) -> None:
        """Wait for one of them, for a while."""
        if (come := self._come.get(version)) is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WAIT_SECONDS):
                    await come.wait()
