"""Gates that a server of another release has on, found out by what it keeps of dry-run writes."""

from __future__ import annotations

import asyncio

import pytest
from scheduler_bench import CLAIMS, CLASSES, NODES, NS, PODS, SLICES, Bench, play

from haru.client.api import ApiClient
from haru.client.gate_probes import doubtful_gates, kept_gates
from haru.client.server_version import gates_for_server
from haru.kube.gate_table import gates_of
from haru.kube.gates import FeatureGates

ALPHA = ("DRAConsumableCapacity", "DRADeviceTaints", "DRAExtendedResource", "DRAPartitionableDevices")

ALPHA_36 = ("GenericWorkload", "DRANodeAllocatableResources", "DRAWorkloadResourceClaims")


class OtherServer(Bench):
    """A server of 1.`minor` with some gates turned on; the scheduler finds out which."""

    def __init__(self, minor: int, *on: str, found_out: bool = True) -> None:
        super().__init__()
        self.gates = FeatureGates({gate: True for gate in on if not gates_of(minor)[gate].locked}, minor)
        self.runtime_config = {"api/all": True}
        self.kept: dict[str, bool] = {}
        self.found_out = found_out

    def scheduler_gates(self) -> FeatureGates:
        return gates_for_server({}, self.api.version, self.kept)[0]

    async def start_scheduler(self) -> None:
        if self.found_out:
            self.kept = await kept_gates(self.api, doubtful_gates((), self.api.version))
        await super().start_scheduler()


@pytest.mark.parametrize(
    ("minor", "on"),
    [(33, ()), (33, ALPHA), (34, ()), (34, ALPHA), (35, ()), (35, ALPHA), (36, ()), (36, ALPHA_36)],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else value,
)
def test_gates_that_a_server_has_on_are_found_out_without_a_trace(minor: int, on: tuple[str, ...]) -> None:
    async def scenario(bench: Bench) -> None:
        assert isinstance(bench, OtherServer)
        there = bench.gates.all()
        known = [gate for gate in on if there[gate]]
        assert {gate for gate, kept in bench.kept.items() if kept} == set(known) - {"GenericWorkload"}
        in_doubt = doubtful_gates((), bench.api.version)
        assert set(known) - {"GenericWorkload"} <= in_doubt
        assert in_doubt - {"DRAWorkloadResourceClaims"} <= set(bench.kept)
        for kind in (CLAIMS, CLASSES, SLICES):
            names = [item["metadata"]["name"] for item in (await bench.api.list(kind))["items"]]
            assert not [name for name in names if "probe" in name]

    known_gates = gates_of(minor)
    play(scenario, bench=OtherServer(minor, "DynamicResourceAllocation", *(gate for gate in on if gate in known_gates)))


@pytest.mark.parametrize("found_out", [True, False])
def test_extended_resource_is_requested_where_the_server_keeps_its_class(found_out: bool) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.create(
            CLASSES, {"metadata": {"name": "card"}, "spec": {"extendedResourceName": "example.com/card"}}
        )
        await bench.node("n1", gpus=1)
        amounts = {"example.com/card": "1"}
        container = {"name": "c", "image": "i", "resources": {"limits": amounts, "requests": amounts}}
        await bench.create(PODS, {"metadata": {"name": "a"}, "spec": {"containers": [container]}})
        await asyncio.sleep(30)
        assert bool(await bench.node_of("a")) is found_out

    play(scenario, bench=OtherServer(35, "DRAExtendedResource", found_out=found_out))


def test_gates_that_were_given_and_those_of_this_version_are_not_in_doubt() -> None:
    async def scenario(bench: Bench) -> None:
        assert doubtful_gates(ALPHA, bench.api.version).isdisjoint(ALPHA)
        assert await kept_gates(bench.api, ()) == {}

    play(scenario, bench=OtherServer(34))


def test_server_without_dra_is_asked_nothing() -> None:
    async def scenario(bench: Bench) -> None:
        bench.runtime_config = {}
        assert doubtful_gates((), bench.api.version) == frozenset()

    bench = OtherServer(33)
    bench.runtime_config = {}
    play(scenario, bench=bench)


def test_without_rights_the_versions_defaults_stay() -> None:
    async def scenario(bench: Bench) -> None:
        nobody = ApiClient.in_process(bench.server, "nobody")
        nobody.version = bench.api.version
        assert await kept_gates(nobody, ALPHA) == {}
        assert (await bench.api.list(NODES))["items"] == [] and (await bench.api.list(CLAIMS, NS))["items"] == []

    play(scenario, bench=OtherServer(34, "DRAExtendedResource"))
