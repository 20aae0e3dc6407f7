r"""What kube-scheduler and Haru's scheduler make of devices that are attached on demand, late, or not at all.

    export PYTHONPATH=.:tests:tests/side_by_side
    python -m bindings_compared --kubernetes FOLDER [--seed 0] [--count 30] [--disturbance none|kill|lease]

The folder holds kube-apiserver and kube-scheduler; `etcd` is on PATH. Each scheduler has a kube-apiserver of its own. A
seed is a scenario (`random_bindings`): nodes with devices, some of which have binding conditions (KEP-5007), and pods
that need them. A controller says of allocated devices that they are attached, that they failed, or nothing. All
scenarios go on at once, for SECONDS. Compared are the nodes of pods, the devices that each claim got one after the
other, what is left in the claims, messages of PodScheduled, events, and conditions of victims and PodGroups. Where a
scheduler is killed meanwhile, or loses its Lease, only what comes of it counts. Exit code 1 if anything differs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from attaching_driver import AttachingDriver, Trace
from benchmarks.control_planes import QPS, haru_program, serving
from binding_verdicts import differences
from decided_cluster import KINDS, DecidedCluster
from engine_outcomes import GANG_GATES
from kept_scheduler import DISTURBANCES, ELECTION, KeptScheduler
from manifests import NAMESPACE, Obj
from random_bindings import Act, Scenario, classes, scenario

from haru.client.api import ApiClient

SECONDS = 36
TIMEOUT_SECONDS = 8
"""For binding conditions: kube-scheduler looks at them every five seconds."""
_ADMISSION = "--disable-admission-plugins=ServiceAccount,DefaultTolerationSeconds,TaintNodesByCondition"


@contextlib.contextmanager
def _plane(programs: Path, scheduler: Sequence[str]) -> Iterator[tuple[Path, KeptScheduler]]:
    """The kubeconfig of a kube-apiserver with a scheduler, until the block is left."""
    on = "--feature-gates=" + ",".join(f"{name}=true" for name in GANG_GATES)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(serving(str(programs / "kube-apiserver"), [on, _ADMISSION]))
        configuration = folder / "scheduler.json"
        configuration.write_text(json.dumps(_configuration(server.kubeconfig)))
        log = folder / "scheduler.log"
        kept = KeptScheduler([*scheduler, f"--config={configuration}", on], log)
        yield server.kubeconfig, stack.enter_context(kept.running())
        if kept.is_broken:
            raise RuntimeError(f"{scheduler[0]} has ended:\n{log.read_text()[-2000:]}")


def _configuration(kubeconfig: Path) -> Obj:
    arguments = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "DynamicResourcesArgs"}
    arguments["bindingTimeout"] = f"{TIMEOUT_SECONDS}s"
    volumes = {
        "apiVersion": arguments["apiVersion"],
        "kind": "VolumeBindingArgs",
        "bindTimeoutSeconds": TIMEOUT_SECONDS,
    }
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": QPS, "burst": QPS},
        "leaderElection": ELECTION,
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 1,
        "profiles": [
            {
                "schedulerName": "default-scheduler",
                "pluginConfig": [
                    {"name": "DynamicResources", "args": arguments},
                    {"name": "VolumeBinding", "args": volumes},
                ],
            }
        ],
    }


async def _traces(
    kubeconfig: Path, scheduler: KeptScheduler, scenarios: Sequence[Scenario], how: str
) -> dict[int, Trace]:
    async with ApiClient.from_kubeconfig(str(kubeconfig)) as api:
        cluster = DecidedCluster(api)
        await cluster.prepare()
        for one in (*classes(), *(one for each in scenarios for one in each.objects)):
            await cluster.create(one)
        await scheduler.leads(api)
        await asyncio.sleep(0.5)
        driver = AttachingDriver(api, scenarios)
        looks = asyncio.create_task(driver.looks())
        for each in scenarios:
            for one in each.units:
                await cluster.create(one)
        acts = [asyncio.create_task(_act(api, cluster, act)) for each in scenarios for act in each.acts]
        acts.append(asyncio.create_task(scheduler.disturb(api, how)))
        await asyncio.gather(asyncio.sleep(SECONDS), *acts)
        if not looks.cancel():
            looks.result()  # it failed
        await asyncio.gather(looks, return_exceptions=True)
        await driver.finish()
        return driver.traces


async def _act(api: ApiClient, cluster: DecidedCluster, act: Act) -> None:
    await asyncio.sleep(act.at)
    for one in act.objects:
        kind, name = KINDS[one["kind"]], one["metadata"]["name"]
        if act.verb == "create":
            await cluster.create(one)
        else:
            grace = 0 if act.verb == "force" else None
            await api.delete(kind, name, NAMESPACE if kind.namespaced else "", grace_period_seconds=grace)


Plane = tuple[Path, KeptScheduler]


async def _compared(kube: Plane, haru: Plane, scenarios: Sequence[Scenario], how: str) -> Counter[str]:
    seen, ours = await asyncio.gather(_traces(*kube, scenarios, how), _traces(*haru, scenarios, how))
    counted = Counter[str](scenarios=len(scenarios))
    for one in scenarios:
        found = differences(seen[one.seed], ours[one.seed], one, is_disturbed=how != "none")
        counted.update(found or ("same",))
        if found:
            print(f"seed {one.seed}: {', '.join(found)}; {one.told()}")
            for who, trace in (("kube-scheduler", seen[one.seed]), ("haru", ours[one.seed])):
                print(f"  {who}: nodes {trace.nodes}", *trace.lines(), sep="\n      ", flush=True)
    return counted


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the differences; 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubernetes", type=Path, required=True, help="folder with Kubernetes' programs")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--count", type=int, default=30, help="how many seeds")
    parser.add_argument("--disturbance", choices=DISTURBANCES, default="none", help="of the schedulers")
    options = parser.parse_args(arguments)
    scenarios = [scenario(seed) for seed in range(options.seed, options.seed + options.count)]
    kube = [str(options.kubernetes / "kube-scheduler"), "--secure-port=0"]
    haru = [*haru_program("haru"), "scheduler", "--health-port=0"]
    with _plane(options.kubernetes, kube) as first, _plane(options.kubernetes, haru) as second:
        counted = asyncio.run(_compared(first, second, scenarios, options.disturbance))
    print(", ".join(f"{what} {count}" for what, count in counted.most_common()))
    return 1 if counted["same"] < len(scenarios) else 0


if __name__ == "__main__":
    sys.exit(main())
