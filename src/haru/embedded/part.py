"""A part of `haru up`: one or several components that are started, and stopped, together.

Parts know the API server by their clients alone. So the same part runs in the process of the API server or in one of
its own (`part_process.py`); the modules of a part are imported where it runs, and nowhere else.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from haru.client.api import ApiClient
from haru.clock import SYSTEM, Clock
from haru.embedded.options import UpOptions
from haru.event_loop import cancelled
from haru.kube.api_services import GroupVersion

if TYPE_CHECKING:
    from haru.embedded.simulated_nodes import Nodes
    from haru.scheduler.debugger import StateDump


class Clients(Protocol):
    """Gives each component a client with an identity of its own."""

    def component(self, name: str) -> ApiClient:
        """The client of a component, or of the administrator."""

    def controller(self, name: str) -> ApiClient:
        """The client of a controller, with the identity of its ServiceAccount."""

    def node(self, name: str) -> ApiClient:
        """The client of a node, with the identity of its kubelet."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a part is given once the API server serves."""

    clients: Clients
    directory: Path
    authority: str
    """The CA of the API server's certificate, as PEM."""
    nodes: Nodes
    clock: Clock = SYSTEM
    kept: Mapping[str, Any] = field(default_factory=dict)
    """What the part of a process that died had to pass on."""


class Part(Protocol):
    """A part of `haru up`; it is made, and its options checked, before anything is started."""

    async def start(self, setting: Setting) -> None:
        """Start the components; return when they are ready. OptionError if the options are not usable here."""

    async def failed(self) -> None:
        """Wait until a component ends, and raise what ended it."""

    async def stop(self) -> None:
        """End the components."""

    def phrases(self) -> Sequence[str]:
        """What runs, in the words of one line for all parts."""

    def notes(self) -> Sequence[str]:
        """What else is to be said of it, once it is ready, in lines."""

    def revisions(self) -> Mapping[str, int]:
        """The newest revision that it wrote, by kind, of what others should have seen before all is ready."""

    async def wait_seen(self, revisions: Mapping[str, int]) -> None:
        """Wait until it has seen what others wrote."""

    def kept(self) -> Mapping[str, Any]:
        """What the part is given, as JSON, if its process dies and it is started anew in another one."""

    def dump(self) -> StateDump | None:
        """The state of a scheduler, for the log; None if there is none."""


IDENTITIES: Final[Mapping[str, tuple[str, ...]]] = {
    "scheduler": ("scheduler",),
    "controllers": ("controllers",),
    "nodes": ("fleet", "driver", "provisioner"),
    "pages": ("dashboard", "accounting", "explain", "admin"),
}
"""Whose tokens a part needs, in the order in which the parts stand here, and are started."""
READERS: Final = "pages"
"""The part that shows what the others do: it starts when they are ready."""

EXPLAIN_API: Final[GroupVersion] = ("explain.haru.dev", "v1alpha1")
METRICS_API: Final[GroupVersion] = ("metrics.k8s.io", "v1beta1")


def needed_parts(options: UpOptions) -> list[str]:
    """The parts that the options leave anything to do."""
    shows = options.dashboard is not None or options.usage.history or options.usage.metrics is not None
    idle = {
        "scheduler": not options.scheduler.names,
        READERS: not shows and not options.explain_api and not options.metrics_api,
    }
    return [name for name in IDENTITIES if not idle.get(name)]


def expected_apis(options: UpOptions) -> tuple[GroupVersion, ...]:
    """The group versions that the readers serve, a moment after the start, behind the aggregation layer."""
    served = {
        EXPLAIN_API: options.explain_api,
        METRICS_API: options.metrics_api and options.simulated_nodes,
    }
    return tuple(version for version, is_served in served.items() if is_served)


def load_part(name: str) -> Callable[[UpOptions], Part]:
    """Import the module of a part; what is returned makes the part, and raises OptionError."""
    made: Callable[[UpOptions], Part] = importlib.import_module(f"haru.embedded.{name}_part").part
    return made


class Tasks:
    """Common to parts: their components are tasks of the running loop."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    async def failed(self) -> None:
        """Wait until a component ends, and raise what ended it."""
        await ended(self._tasks)

    async def stop(self) -> None:
        """End the components, the one started last first."""
        await cancelled(*reversed(self._tasks))

    def phrases(self) -> Sequence[str]:
        """Nothing, if a part has nothing to say."""
        return ()

    def notes(self) -> Sequence[str]:
        """Nothing, if a part has nothing to say."""
        return ()

    def revisions(self) -> Mapping[str, int]:
        """Nothing, if others need not wait for what a part writes."""
        return {}

    async def wait_seen(self, revisions: Mapping[str, int]) -> None:
        """Wait for nothing, if a part does not depend on the others at the start."""

    def kept(self) -> Mapping[str, Any]:
        """Nothing, if nobody outside would notice that the part is another one."""
        return {}

    def dump(self) -> StateDump | None:
        """None: there is no scheduler."""
        return None

    def _run(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work, name=name))

    async def _until_ready(self, waits: Sequence[Callable[[], Awaitable[Any]]]) -> None:
        await unless(self.failed(), asyncio.gather(*(wait() for wait in waits)))


async def ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Wait until one of the tasks ends, and raise what ended it; without tasks, wait for ever."""
    if not tasks:
        await asyncio.Event().wait()
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    raise RuntimeError(f"{', '.join(task.get_name() for task in done)} ended")


async def unless(failing: Coroutine[Any, Any, None], work: Awaitable[Any]) -> None:
    """Wait for some work, or raise what `failing` raises before it is done."""
    working, ending = asyncio.ensure_future(work), asyncio.ensure_future(failing)
    try:
        await asyncio.wait({working, ending}, return_when=asyncio.FIRST_COMPLETED)
        if ending.done():
            ending.result()
        await working
    finally:
        await cancelled(working, ending)
