r"""Random work on random clusters: what kube-scheduler makes of it, and what Haru's engine decides in its place.

    export PYTHONPATH=.:tests:tests/side_by_side
    python -m decisions_compared --kubernetes FOLDER [--seed 0] [--count 20] [--with DIMENSION ...] [--alpha] \
        [--keep FOLDER]

The folder holds kube-apiserver and kube-scheduler; `etcd` is on PATH. A seed is a cluster and five steps on it: a pod
or gang comes, the pods of a template are made anew, or a node or slice changes while the last unit waits. Afterwards
bindings, messages of PodScheduled, victims, nominated nodes, devices and volumes are compared with the decisions of
`haru.engine` on the objects as they were before; where several are right, each is. What quotas refuse is compared with
the answers of Haru's API server. Exit code 1 if anything differs that is not known (`decision_verdicts.KNOWN`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.control_planes import QPS, Server, serving
from benchmarks.processes import started
from decided_cluster import DecidedCluster, condition, name_of
from decided_situations import Situation, named_claims
from decision_verdicts import KNOWN, MESSAGES, Outcome, Placement, differences
from engine_outcomes import ALPHA_GATES, GANG_GATES, decisions, helps, kept_nominations, outcome_of, without_search
from known_causes import cause_of
from manifests import Obj
from random_clusters import ALPHA_DIMENSIONS, DIMENSIONS, ChangeDraw, ClusterDraw, drawn_dimensions
from random_profiles import configuration
from random_work import Unit, WorkDraw

from haru.client.api import ApiClient
from haru.engine import Decision

STEPS = 5
_OF_OTHERS = ("exceed max volume count", "ReadWriteOncePod access mode already in-use")
"""What pods are told that wait for volumes of others."""
_ADMISSION = "--disable-admission-plugins=ServiceAccount,DefaultTolerationSeconds,TaintNodesByCondition"


@dataclass(frozen=True)
class Step:
    """What became of a unit after a step, what should have, and the situation."""

    what: str
    seen: Outcome
    expected: Sequence[Outcome]
    differences: tuple[str, ...]
    situation: Obj

    @property
    def is_known(self) -> bool:
        """Whether nothing differs, or what differs is explained."""
        return all(one in KNOWN for one in self.differences)

    def lines(self) -> list[str]:
        """The step as it is printed."""
        head = f"{self.what}: {'+'.join(self.differences)}; victims {self.seen.victims} / {self.expected[0].victims}"
        found = [head]
        for name, one in self.seen.pods.items():
            found += [
                f"   {name}",
                f"     kube-scheduler {one}",
                f"     haru           {self.expected[0].pods.get(name)}",
            ]
        if self.seen.devices != self.expected[0].devices:
            found += [f"     devices {dict(self.seen.devices)}", f"             {dict(self.expected[0].devices)}"]
        if self.seen.volumes != self.expected[0].volumes:
            found.append(f"     volumes {dict(self.seen.volumes)} / {dict(self.expected[0].volumes)}")
        return found


class Play:
    """A seed on a cluster."""

    def __init__(
        self, cluster: DecidedCluster, seed: int, dimensions: frozenset[str], gates: Sequence[str] = GANG_GATES
    ) -> None:
        self._cluster = cluster
        self._gates = gates
        self._draw = ClusterDraw(random.Random(seed), dimensions, f"s{seed}")
        self._work = WorkDraw(self._draw)
        self._dice = self._draw.dice
        self._number = 0
        self._unit = Unit([])
        self._asked: list[Obj] = []
        self._group: Obj | None = None
        self._refused: Decision | None = None
        """Of the last unit, while it waits."""
        self._templates: dict[str, Obj] = {}
        self._claims: list[str] = []
        """Those of the last unit."""

    async def steps(self) -> AsyncIterator[Step]:
        """Make the cluster, and take its steps."""
        for one in [*self._draw.quotas(), *self._draw.services(), *self._draw.nodes(), *self._draw.devices()]:
            await self._cluster.create(one)
        for one in self._work.volumes.offered():
            await self._cluster.create(one)
        for one in self._draw.running(lambda: self._work.spec(bound=True)):
            for volume in self._work.volumes.drained():
                await self._cluster.create(volume)
            await self._cluster.create(one)
        await asyncio.sleep(0.4)
        for number in range(STEPS):
            self._number = number
            step = await self._step(number)
            if step:
                yield step

    async def _step(self, number: int) -> Step | None:
        if "changes" in self._draw.dimensions and self._refused and not self._dice.one_in(4):
            return await self._change(number)
        if self._refused:
            for pod in self._asked:
                await self._cluster.delete(pod)
            self._refused = None
        if self._templates and not self._unit.group and self._dice.one_in(2):
            await self._cluster.end(self._asked, frees=not self._dice.one_in(3))
            return await self._arrive(self._work.again(self._unit, number), f"unit {number}, made anew")
        return await self._arrive(self._work.unit(number), f"unit {number}")

    # -- a unit comes -------------------------------------------------------------------------------------------------

    async def _arrive(self, unit: Unit, what: str) -> Step | None:
        before = await self._cluster.world()
        first = await self._created([*unit.templates, *unit.claims])
        if first is None:
            return None
        self._templates |= {name_of(one): one for one in unit.templates}
        self._work.named += [name_of(one) for one in first if one["kind"] == "ResourceClaim"]
        await asyncio.sleep(0.15)
        pods = await self._created(unit.pods)
        own = await self._cluster.make_claims(pods, self._templates) if pods else None
        if not pods or own is None:
            await self._cluster.end(pods or [], frees=True)
            return None
        if any("schedulingGates" in one["spec"] for one in unit.pods):
            await self._cluster.release(pods, unit.released, unit.nominated)
        # The group comes last: a scheduler would decide a gang as soon as its quorum is there.
        if unit.group and await self._created([unit.group]) is None:
            return None
        self._unit, names = unit, [name_of(one) for one in pods]
        after = await self._cluster.decided(names)
        known = {one["metadata"]["uid"] for one in before}
        new = [one for one in await self._cluster.world() if one["metadata"]["uid"] not in known]
        new = [one for one in new if not _is_made_later(one)]
        claims = self._claims = [name_of(one) for one in new if one["kind"] == "ResourceClaim"]
        volumes = {one["metadata"]["uid"]: one for one in (*first, *own) if one["kind"].startswith("PersistentVolume")}
        new = [volumes.get(one["metadata"]["uid"]) or _unscheduled(one, names, claims, unit.nominated) for one in new]
        self._asked = [one for one in new if one["kind"] == "Pod"]
        self._group = next((one for one in new if one["kind"] == "PodGroup"), None)
        return await self._judged(what, [*before, *new], before, after)

    async def _created(self, given: Sequence[Obj]) -> list[Obj] | None:
        """The stored objects; None where a quota refuses one, and then none of them is there."""
        made = list[Obj]()
        for one in given:
            stored = await self._cluster.create(one)
            if stored is None:
                for each in made:
                    await self._cluster.delete(each)
                return None
            made.append(stored)
        return made

    # -- the cluster changes ------------------------------------------------------------------------------------------

    async def _change(self, number: int) -> Step:
        assert self._refused
        before = await self._cluster.world()
        verb, one = ChangeDraw(self._draw).change(before)
        pods = {name_of(each): each for each in before if each["kind"] == "Pod"}
        old = next((each for each in before if _path(each) == _path(one)), None)
        others = [each for each in before if _path(each) != _path(one)]
        if verb == "create":
            await self._cluster.create(one)
        elif verb == "update":
            await self._cluster.update(one)
        else:
            await self._cluster.delete(one)
        names = [name_of(pod) for pod in self._asked]
        after = await self._cluster.decided(names, since=pods)
        new = None if verb == "delete" else next(
            each for each in await self._cluster.listed(one["kind"]) if name_of(each) == name_of(one)
        )  # fmt: skip
        objects = [_unscheduled(each, names, self._claims) for each in (*others, *((new,) if new else ()))]
        self._asked = [each for each in objects if each["kind"] == "Pod" and name_of(each) in names]
        refused = self._refused
        before = [each for each in before if verb != "delete" or _path(each) != _path(one)]
        step = await self._judged(f"step {number}, {verb} {_path(one)}", objects, before, after)
        is_told_again = any(condition(after[name]) != condition(pods[name]) for name in names if name in after)
        found = set(step.differences)
        if not is_told_again:
            # Nobody looked again, or saw the same: there is nothing new that could be compared.
            found -= MESSAGES
            told = [condition(pods[name]).get("message", "") for name in names]
            if one["kind"] == "Node" and all(any(words in text for words in _OF_OTHERS) for text in told):
                found = {"sleeps"} if found else found
        if any(all(each.bound.values()) for each in step.expected) and not helps(
            refused, self._asked, objects, old, new
        ):
            found.add("haru sleeps")
        return replace(step, differences=tuple(sorted(found)))

    # -- comparing ----------------------------------------------------------------------------------------------------

    async def _judged(self, what: str, objects: list[Obj], before: Sequence[Obj], after: dict[str, Obj]) -> Step:
        names = [name_of(pod) for pod in self._asked]
        pods = {name: _placement(after[name]) for name in names}
        bound = [pod for pod in self._asked if pods[name_of(pod)].node]
        volumes = await self._cluster.volumes(bound, [one for one in objects if one["kind"] == "PersistentVolumeClaim"])
        claims = [one for one in named_claims(self._asked, objects) if not (one.get("status") or {}).get("allocation")]
        devices = await self._cluster.allocated(names, list(map(name_of, claims)))
        seen = Outcome(pods, _victims(before, after), devices, volumes=volumes)
        found = self._decided(Situation(objects, self._asked, self._group))
        kept = kept_nominations(objects, self._asked)
        expected = [outcome_of(one, kept) for one in found]
        await self._cluster.run([after[name] for name, one in pods.items() if one.node], self._number)
        promised = any(
            one["kind"] == "Pod" and one["status"].get("nominatedNodeName") and not one["spec"].get("nodeName")
            for one in before
        )
        differing = differences(seen, expected, self._group is not None, promised)
        if any(one not in KNOWN for one in differing):
            ours = await self._cluster.placed_since(objects, [after[name] for name in names])
            others = await self._cluster.placed_since(objects, [after[name] for name in after.keys() - set(names)])
            case = Situation(objects, self._asked, self._group, others=others, placed=ours)
            cause = cause_of(differing, seen, expected, case, self._outcomes)
            differing = (cause,) if cause else differing
        waits = not any(one.node or one.nominated for one in pods.values())
        self._refused = found[0] if waits and found[0].status == "unschedulable" else None
        if waits and not self._refused:
            for pod in self._asked:
                await self._cluster.delete(pod)
        situation = {"objects": objects, "asked": self._asked, "group": self._group, "seen": asdict(seen)}
        return Step(what, seen, expected, differing, situation)

    def _decided(self, case: Situation) -> list[Decision]:
        with contextlib.nullcontext() if case.searches else without_search():
            return decisions(case.objects, case.pods, case.group, self._gates)

    def _outcomes(self, case: Situation) -> list[Outcome]:
        return [outcome_of(one, kept_nominations(case.objects, case.pods)) for one in self._decided(case)]


def _path(one: Obj) -> str:
    return f"{one['kind']}/{name_of(one)}"


def _unscheduled(one: Obj, names: Collection[str], claims: Collection[str], nominated: str = "") -> Obj:
    """An object as it was before the scheduler came by, its pods nominated by others."""
    if one["kind"] == "PodGroup":
        return {**one, "status": {}}
    status = one.get("status") or {}
    if one["kind"] == "ResourceClaim" and name_of(one) in claims:
        return {**one, "status": {}}
    if one["kind"] != "Pod" or name_of(one) not in names:
        return one
    kept = {key: status[key] for key in ("resourceClaimStatuses",) if key in status}
    kept |= {"nominatedNodeName": nominated} if nominated else {}
    spec = {key: value for key, value in one["spec"].items() if key != "nodeName"}
    return {**one, "spec": spec, "status": {"phase": "Pending", **kept}}


def _is_made_later(one: Obj) -> bool:
    """Whether the scheduler made it for extended resources, or the driver of volumes for a claim."""
    notes = one["metadata"].get("annotations") or {}
    if one["kind"] == "PersistentVolume":
        return name_of(one).startswith("pvc-")
    return one["kind"] == "ResourceClaim" and "resource.kubernetes.io/extended-resource-claim" in notes


def _placement(pod: Obj) -> Placement:
    node = pod["spec"].get("nodeName") or ""
    message = "" if node else condition(pod).get("message", "")
    return Placement(node, message, pod["status"].get("nominatedNodeName") or "")


def _victims(before: Sequence[Obj], after: dict[str, Obj]) -> list[str]:
    """The pods that have been deleted since."""
    pods = {name_of(one): one["metadata"].get("deletionTimestamp") for one in before if one["kind"] == "Pod"}
    return sorted(
        name
        for name, was_ending in pods.items()
        if not was_ending and (name not in after or after[name]["metadata"].get("deletionTimestamp"))
    )


async def compared(
    cluster: DecidedCluster, seeds: Sequence[int], only: Collection[str], keep: Path | None, alpha: bool = False
) -> Counter[str]:
    """Play the seeds, print what is not known, and return how often each came."""
    gates = ALPHA_GATES if alpha else GANG_GATES
    await cluster.prepare()
    await cluster.clean()
    counted = Counter[str]()
    for seed in seeds:
        dimensions = drawn_dimensions(random.Random(seed), alpha) if not only else frozenset(only)
        try:
            async for step in Play(cluster, seed, dimensions, gates).steps():
                counted["units"] += 1
                counted.update(step.differences or ("same",))
                if not step.is_known:
                    counted["unknown"] += 1
                    print(f"seed {seed}, {','.join(sorted(dimensions))}", *step.lines(), sep="\n", flush=True)
                    if keep:
                        text = json.dumps(step.situation)
                        await asyncio.to_thread((keep / f"{seed} {step.what.replace('/', ' ')}.json").write_text, text)
        except Exception:
            counted["unknown"] += 1
            print(f"seed {seed}:", flush=True)
            traceback.print_exc(file=sys.stdout)
        finally:
            await cluster.clean()
    for line in cluster.other_answers:
        counted["unknown"] += 1
        print(f"other answer of Haru's API server: {line}")
    counted["refused by quotas"] = cluster.refusals
    return counted


@contextlib.contextmanager
def planes(programs: Path, gates: Sequence[str] = GANG_GATES) -> Iterator[tuple[Server, Server]]:
    """A kube-apiserver with kube-scheduler, and Haru's API server alone, until the block is left."""
    on = "--feature-gates=" + ",".join(f"{name}=true" for name in gates)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kube = stack.enter_context(serving(str(programs / "kube-apiserver"), [on, _ADMISSION]))
        mirror = stack.enter_context(serving("haru", [on]))
        configuration = folder / "scheduler.json"
        configuration.write_text(json.dumps(_configuration(kube.kubeconfig)))
        command = [str(programs / "kube-scheduler"), f"--config={configuration}", on, "--secure-port=0"]
        stack.enter_context(started(command, folder / "scheduler.log"))
        yield kube, mirror


def _configuration(kubeconfig: Path) -> Obj:
    """The configuration of kube-scheduler: each look at a pod that was woken comes within a second."""
    return configuration(
        clientConnection={"kubeconfig": str(kubeconfig), "qps": QPS, "burst": QPS},
        leaderElection={"leaderElect": False},
        podInitialBackoffSeconds=1,
        podMaxBackoffSeconds=1,
    )


async def _on_planes(kube: Path, mirror: Path, options: argparse.Namespace) -> Counter[str]:
    async with ApiClient.from_kubeconfig(str(kube)) as api, ApiClient.from_kubeconfig(str(mirror)) as other:
        seeds = range(options.seed, options.seed + options.count)
        return await compared(DecidedCluster(api, other), seeds, options.dimensions, options.keep, options.alpha)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the differences; 1 if there are any that are not known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubernetes", type=Path, required=True, help="folder with Kubernetes' programs")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--count", type=int, default=20, help="how many seeds")
    parser.add_argument(
        "--with", action="append", dest="dimensions", choices=(*DIMENSIONS, *ALPHA_DIMENSIONS), default=[]
    )
    parser.add_argument("--alpha", action="store_true", help="with what alpha gates of devices turn on, too")
    parser.add_argument("--keep", type=Path, help="folder for the situations of what is not known")
    options = parser.parse_args(arguments)
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    with planes(options.kubernetes, ALPHA_GATES if options.alpha else GANG_GATES) as (kube, mirror):
        counted = asyncio.run(_on_planes(kube.kubeconfig, mirror.kubeconfig, options))
    print(", ".join(f"{what} {count}" for what, count in counted.most_common()))
    return 1 if counted["unknown"] else 0


if __name__ == "__main__":
    sys.exit(main())
