"""Start a local cluster, run a plan on it, and inject the seeded faults while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

from haru.client.api import ApiClient
from haru.event_loop import cancelled
from haru.files import write_whole
from haru.kube.errors import StatusError
from haru.kube.kinds import known_kind
from haru.stress.cluster import clean_up, survey
from haru.stress.local.faults import FAULTS, Fault
from haru.stress.local.processes import GATES, Processes
from haru.stress.local.proxy import FaultProxy
from haru.stress.manifests import Target
from haru.stress.plan import Limits
from haru.stress.report import Report
from haru.stress.run import Settings, StressRun
from haru.stress.seeded_plan import seeded_plan

SCHEDULER: Final = "haru"
_LEASES: Final = known_kind("coordination.k8s.io/v1", "Lease")
_COMPONENT: Final = ("--health-port", "0", "--feature-gates", GATES)
_SCHEDULERS: Final = ("scheduler-0", "scheduler-1")
_MID_BINDING_LOOKS: Final = 2000
_LATENCY: Final = 0.05
_SHARE_REFUSED: Final = 0.5


class LocalCluster:
    """A local cluster with its proxy; `faults` breaks it."""

    def __init__(self, home: Path, seed: int) -> None:
        self.processes = Processes(home, SCHEDULER)
        self.processes.prepare()
        self.proxy = FaultProxy(self.processes.url, self.processes.tls, random.Random(seed))
        self.client = ApiClient.from_kubeconfig(self.processes.kubeconfig, user_agent="haru-stress")

    async def start(self, profiles: str) -> None:
        """Start everything and wait until the nodes are there."""
        processes = self.processes
        await processes.start_servers()
        await self.proxy.start()
        direct = str(processes.kubeconfig)
        processes.start_component(
            "controllers",
            ["controllers", "--kubeconfig", direct, "--no-leader-elect", "--controllers", "*", *_COMPONENT],
        )
        fleet = ["fleet", "--kubeconfig", direct, "--profile", profiles]
        processes.start_component("fleet", fleet)
        through = processes.home / "scheduler.kubeconfig"
        write_whole(through, processes.kubeconfig_for(self.proxy.url))
        flags = ["--kubeconfig", str(through), "--config", "scheduler.yaml", *_COMPONENT]
        for name in _SCHEDULERS:
            processes.start_component(name, ["scheduler", *flags])
        await processes.wait_line("fleet", "ready on")

    async def heal(self) -> None:
        """End what a fault left: all processes run, nothing is delayed or refused."""
        proxy, processes = self.proxy, self.processes
        proxy.latency = proxy.refused = 0.0
        proxy.partition(False)
        processes.signal("etcd", signal.SIGCONT)
        processes.start_missing()
        await processes.wait_ready()

    async def stop(self) -> None:
        """Stop everything."""
        await self.client.close()
        self.processes.stop()
        await self.proxy.stop()

    async def leader(self) -> str:
        """The process that holds the schedulers' Lease; the first one if that cannot be told."""
        with contextlib.suppress(StatusError, OSError):
            lease = await self.client.get(_LEASES, "haru-scheduler", "kube-system")
            holder = str((lease.get("spec") or {}).get("holderIdentity") or "")
            parts = holder.split("_")
            if len(parts) > 2 and parts[-2].isdigit():
                return self.processes.name_of_pid(int(parts[-2])) or _SCHEDULERS[0]
        return _SCHEDULERS[0]


class FaultInjector:
    """Injects faults in their time, and tells the run when what was broken works again."""

    def __init__(self, cluster: LocalCluster, run: StressRun, faults: tuple[Fault, ...]) -> None:
        self._cluster = cluster
        self._run = run
        self._faults = faults
        self._inject: dict[str, Callable[[Fault], Any]] = {
            "leader": self._kill_leader,
            "apiserver": self._kill_api_server,
            "etcd": self._stop_etcd,
            "partition": self._partition,
            "expired": self._expire,
            "throttle": self._throttle,
            "latency": self._delay,
        }

    async def run(self) -> None:
        """Inject all faults; keeps the schedulers running until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_schedulers())
            for fault in self._faults:
                await asyncio.sleep(max(fault.at - self._run.now, 0))
                self._run.faults.append(
                    {
                        "at": round(self._run.now, 3),
                        "kind": fault.kind,
                        "seconds": fault.seconds,
                        "message": FAULTS[fault.kind],
                    }
                )
                await self._inject[fault.kind](fault)
                self._run.resume()
            await asyncio.Event().wait()

    async def _keep_schedulers(self) -> None:
        """A scheduler that lost its Lease exits: start it again, as a kubelet would."""
        while True:
            await asyncio.sleep(0.5)
            self._cluster.processes.restart_ended(_SCHEDULERS)

    async def _kill_leader(self, fault: Fault) -> None:
        name = await self._cluster.leader()
        await self._until_half_bound()
        self._cluster.processes.kill(name)
        await asyncio.sleep(fault.seconds)
        self._cluster.processes.start(name)

    async def _until_half_bound(self) -> None:
        """Wait for the moment in which some members of a gang are bound and others are not."""
        for _ in range(_MID_BINDING_LOOKS):
            if self._run.history.half_bound():
                return
            await asyncio.sleep(0.002)

    async def _kill_api_server(self, fault: Fault) -> None:
        self._cluster.processes.kill("apiserver")
        await asyncio.sleep(fault.seconds)
        self._cluster.processes.start("apiserver")
        await self._cluster.processes.wait_ready()

    async def _stop_etcd(self, fault: Fault) -> None:
        self._cluster.processes.signal("etcd", signal.SIGSTOP)
        await asyncio.sleep(fault.seconds)
        self._cluster.processes.signal("etcd", signal.SIGCONT)

    async def _partition(self, fault: Fault) -> None:
        self._cluster.proxy.partition(True)
        await asyncio.sleep(fault.seconds)
        self._cluster.proxy.partition(False)

    async def _expire(self, fault: Fault) -> None:
        self._cluster.proxy.expire()

    async def _throttle(self, fault: Fault) -> None:
        self._cluster.proxy.refused = _SHARE_REFUSED
        await asyncio.sleep(fault.seconds)
        self._cluster.proxy.refused = 0.0

    async def _delay(self, fault: Fault) -> None:
        self._cluster.proxy.latency = _LATENCY
        await asyncio.sleep(fault.seconds)
        self._cluster.proxy.latency = 0.0


@contextlib.asynccontextmanager
async def local_cluster(home: Path, seed: int, profiles: str) -> AsyncIterator[LocalCluster]:
    """A local cluster that runs for as long as the context lasts. Raises LocalClusterError."""
    cluster = LocalCluster(home, seed)
    try:
        await cluster.start(profiles)
        yield cluster
    finally:
        await cluster.stop()


async def run_local(
    cluster: LocalCluster,
    seed: int,
    limits: Limits,
    target: Target,
    settings: Settings,
    faults: tuple[Fault, ...],
    started: Callable[[StressRun], None],
) -> Report:
    """Run a plan on a local cluster with these faults; its report. What was broken is mended and cleared away."""
    ground = await survey(cluster.client, target, limits, foreign_work=False)
    run = StressRun(cluster.client, seeded_plan(seed, ground.limits), ground, settings)
    started(run)
    injecting: asyncio.Task[None] | None = None
    try:
        working = asyncio.create_task(run.run())
        injecting = asyncio.create_task(FaultInjector(cluster, run, faults).run())
        await asyncio.wait({working, injecting}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            await injecting
        return await working
    finally:
        if injecting is not None:
            await cancelled(injecting)
        await cluster.heal()
        await clean_up(cluster.client, target.namespace)
