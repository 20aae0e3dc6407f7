"""What the library does around a driver: claims it is asked for, answers it may not give, errors that are told."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from dra_bench import DRIVER, NODE, SLICES, bench, device

from haru.cli.main import main
from haru.drivers.library import (
    Allocated,
    ClaimChanged,
    ClaimError,
    ClaimToPrepare,
    ClaimUnreadable,
    ConfigError,
    DriverServer,
    Edits,
    Entry,
    Health,
    Pool,
    ReadyDevice,
)
from haru.drivers.library.claim_service import DriverFiles, Preparer
from haru.drivers.simulated.device_health import parse_device_health, state_of
from haru.drivers.simulated.plugin import SimulatedCards, health_of, pool_of
from haru.drivers.simulated.profiles import load_profile
from haru.kube.errors import StatusError
from haru.kube.gates import FeatureGates
from haru.proto.dra_pb2 import Claim
from waiting import until

Obj = dict[str, Any]
ASKED = Claim(namespace="default", uid="uid-1", name="claim")


def claim(*results: Obj, config: Sequence[Obj] = (), uid: str = "uid-1") -> Obj:
    """An allocated claim."""
    allocation = {"devices": {"results": list(results), "config": list(config)}}
    metadata = {"name": "claim", "namespace": "default", "uid": uid}
    return {"metadata": metadata, "status": {"allocation": allocation} if results else {}}


def given(name: str, request: str = "gpu", driver: str = DRIVER, **more: Any) -> Obj:
    return {"request": request, "driver": driver, "pool": NODE, "device": name, **more}


class Api:
    """One claim, or the error that reading it is."""

    def __init__(self, found: Obj | Exception) -> None:
        self.found = found

    async def get(self, kind: Any, name: str, namespace: str) -> Obj:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


class Plugin:
    """What a driver may do wrong."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.seen: list[ClaimToPrepare] = []
        self.given_back: list[Entry] = []

    async def prepare(self, claim: ClaimToPrepare) -> Sequence[ReadyDevice]:
        self.seen.append(claim)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        if answer == "sleep":
            await asyncio.sleep(3600)
        return (
            answer if answer is not None else [ReadyDevice(one, Edits((f"D={one.device}",))) for one in claim.devices]
        )

    async def unprepare(self, claim: Entry) -> None:
        self.given_back.append(claim)


def preparer(plugin: Any, found: Obj | Exception, place: Path) -> Preparer:
    made = Preparer(plugin, DRIVER, Api(found), DriverFiles(place / "data", place / "cdi"))  # type: ignore[arg-type]
    made.load()
    return made


@pytest.mark.parametrize(
    ("found", "error", "told"),
    [
        (StatusError(404, "NotFound", "no"), ClaimChanged, "is not there any more"),
        (StatusError(403, "Forbidden", "you may not"), ClaimUnreadable, "you may not"),
        (ConnectionRefusedError("refused"), ClaimUnreadable, "does not answer: refused"),
        (claim(given("gpu-0"), uid="uid-2"), ClaimChanged, "has the UID uid-2, not uid-1"),
        (claim(), ClaimChanged, "is not allocated"),
        (claim(given("gpu-0", driver="other.example.com")), ClaimChanged, "has no devices of cards.example.com"),
    ],
)
async def test_claim_not_for_this_driver_is_refused(
    tmp_path: Path, found: Any, error: type[Exception], told: str
) -> None:
    plugin = Plugin()
    made = preparer(plugin, found, tmp_path)
    with pytest.raises(error, match=told):
        await made.prepare(ASKED)
    assert (plugin.seen, made.entries()) == ([], [])


async def test_prepare_request_passes_parameters_shares_and_names(tmp_path: Path) -> None:
    def config(source: str, requests: list[str], number: int, driver: str = DRIVER) -> Obj:
        return {"source": source, "requests": requests, "opaque": {"driver": driver, "parameters": {"n": number}}}

    configs = [
        config("FromClaim", [], 1),
        config("FromClass", ["gpu"], 2),
        config("FromClaim", ["gpu/small"], 3),
        config("FromClaim", ["other"], 4),
        config("FromClass", [], 5, "other.example.com"),
    ]
    shared = given("gpu-0", "gpu/small", shareID="s", consumedCapacity={"memory": "1Gi"}, adminAccess=True)
    plugin = Plugin()
    made = preparer(plugin, claim(shared, given("x", driver="other.example.com"), config=configs), tmp_path)
    (prepared,) = await made.prepare(ASKED)
    (told,) = plugin.seen[0].devices
    parameters = ({"n": 2}, {"n": 1}, {"n": 3})
    assert told == Allocated("gpu/small", NODE, "gpu-0", "s", True, {"memory": "1Gi"}, parameters, (True, False, True))
    assert (prepared.request_names, prepared.share_id) == (["gpu"], "s")


async def test_device_allocated_twice_gets_two_cdi_names(tmp_path: Path) -> None:
    found = claim(given("gpu-0", "a", shareID="1"), given("gpu-0", "b", shareID="2"))
    devices = await preparer(Plugin(), found, tmp_path).prepare(ASKED)
    assert [one.cdi_device_ids for one in devices] == [
        [f"{DRIVER}/claim=uid-1-gpu-0"],
        [f"{DRIVER}/claim=uid-1-gpu-0-2"],
    ]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            ConfigError("sharing.mode", "half", "write none or all"),
            'sharing.mode: Invalid value: "half": write none or all',
        ),
        (ZeroDivisionError("division by zero"), "internal error of the driver: ZeroDivisionError: division by zero"),
        ([], "it did not prepare the devices that were allocated"),
        ([ReadyDevice(Allocated("gpu", NODE, "another"))], "it did not prepare the devices that were allocated"),
        ("sleep", "took longer than 0.01 s"),
    ],
)
async def test_failed_prepare_is_reported_and_can_be_repeated(
    tmp_path: Path, answer: Any, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("haru.drivers.library.claim_service.STEP_SECONDS", 0.01 if answer == "sleep" else 40.0)
    plugin = Plugin(answer)
    made = preparer(plugin, claim(given("gpu-0")), tmp_path)
    with pytest.raises(ClaimError, match=told):
        await made.prepare(ASKED)
    # What may have been begun is known, also to the next process.
    again = preparer(plugin, claim(given("gpu-0")), tmp_path)
    assert [entry.is_ready for entry in again.entries()] == [False]
    monkeypatch.setattr("haru.drivers.library.claim_service.STEP_SECONDS", 40.0)
    assert len(await again.prepare(ASKED)) == 1
    await again.unprepare(ASKED)
    assert [entry.uid for entry in plugin.given_back] == ["uid-1"]


async def test_failed_prepare_is_unprepared_once(tmp_path: Path) -> None:
    plugin = Plugin(ClaimError("no"))
    made = preparer(plugin, claim(given("gpu-0")), tmp_path)
    with pytest.raises(ClaimError):
        await made.prepare(ASKED)
    await made.unprepare(ASKED)
    await made.unprepare(ASKED)
    assert len(plugin.given_back) == 1
    assert made.entries() == []


async def test_cdi_files_are_restored_after_reboot_and_strays_removed(tmp_path: Path) -> None:
    made = preparer(Plugin(), claim(given("gpu-0")), tmp_path)
    before = await made.prepare(ASKED)
    (file,) = (tmp_path / "cdi").iterdir()
    content = file.read_bytes()
    file.unlink()
    stray = file.with_name(f"{DRIVER}-claim_gone.json")
    stray.write_text("{}")
    foreign = file.with_name("other.example.com-claim_gone.json")
    foreign.write_text("{}")
    again = preparer(Plugin(), ConnectionRefusedError("the API is away"), tmp_path)
    assert file.read_bytes() == content
    assert not stray.exists()
    assert foreign.exists()
    assert await again.prepare(ASKED) == before


# -- slices ------------------------------------------------------------------------------------------------------------


async def test_fields_dropped_by_server_are_logged_and_not_rewritten(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "haru.driver")
    async with bench(FeatureGates.parse("DRADeviceTaints=false,DRADeviceTaintRules=false")) as here:
        options = here.options(foreign_seconds=0.05)
        async with DriverServer(Plugin(), here.api, options) as server:
            await server.declare({NODE: Pool.of([device("gpu-0")])})
            await server.set_health(
                {(NODE, "gpu-0"): Health("Unhealthy", "", taints=({"key": "k", "effect": "None"},))}
            )
            await server.wait_published()
            await until(lambda: "did not store all of ResourceSlice" in caplog.text, "the warning")
            (first,) = await here.slices()
            assert "taints" not in first["spec"]["devices"][0]
            # Another change goes through after all that, as the first one since.
            await server.declare({NODE: Pool.of([device("gpu-0"), device("gpu-1")])})
            await server.wait_published()
            (second,) = await here.slices()
            assert second["metadata"]["generation"] == first["metadata"]["generation"] + 1


async def test_empty_foreign_and_undeclared_pools_are_handled() -> None:
    async with bench() as here, DriverServer(Plugin(), here.api, here.options()) as server:
        await server.declare({NODE: Pool.of([]), "second": Pool.of([device("x")])})
        await server.wait_published()
        slices = {one["spec"]["pool"]["name"]: one for one in await here.slices()}
        assert "devices" not in slices[NODE]["spec"]
        assert {one["metadata"]["ownerReferences"][0]["name"] for one in slices.values()} == {NODE}
        await server.declare({NODE: Pool.of([device("x")])})

        async def left() -> bool:
            found = await here.api.list(SLICES)
            return [one["spec"]["pool"]["name"] for one in found["items"]] == [NODE]

        await until(left, "the pool that is declared no more has gone")


# -- the simulated driver ----------------------------------------------------------------------------------------------


async def test_simulated_driver_refuses_unknown_devices_and_parameters(tmp_path: Path) -> None:
    cards = SimulatedCards(pool_of(load_profile("dgx-h100"), NODE), tmp_path)
    good = {"apiVersion": "simulated.haru.dev/v1alpha1", "kind": "SimulatedConfig"}

    async def prepare(name: str, *parameters: Obj) -> Sequence[ReadyDevice]:
        return await cards.prepare(
            ClaimToPrepare("ns", "c", "u", (Allocated("gpu", NODE, name, parameters=parameters),))
        )

    (ready,) = await prepare("gpu-0", {**good, "env": {"A": "1"}})
    assert ready.edits.env[1:] == ("A=1",)
    assert json.loads(text_of(ready.edits.mounts[0].host_path))["name"] == "gpu-0"
    for name, parameters, told in (
        ("gpu-9", (), "device gpu-9: this node has none of that name"),
        ("gpu-0", ({"kind": "GpuConfig"},), "write apiVersion simulated.haru.dev/v1alpha1"),
        ("gpu-0", ({**good, "env": {"1A": "x"}},), r"env\[1A\]"),
        ("gpu-0", ({**good, "env": ["A"]},), "write a mapping"),
    ):
        with pytest.raises(ClaimError, match=told):
            await prepare(name, *parameters)
    await cards.unprepare(Entry("ns", "c", "u"))
    await cards.unprepare(Entry("ns", "c", "u"))
    assert names_in(tmp_path) == []


def text_of(path: str) -> str:
    return Path(path).read_text()


def names_in(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


def test_annotations_set_health_of_simulated_devices() -> None:
    annotations = {
        "simulated.haru.dev/device-health": "gpu-1=Unhealthy:it is: hot, gpu-2=Unknown",
        "simulated.haru.dev/device-taints": "gpu-2=k=v:NoSchedule",
    }
    found = health_of(annotations, ["gpu-1", "gpu-2", "gpu-3"], "pool")
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    assert found == {
        ("pool", "gpu-1"): Health("Unhealthy", "it is: hot"),
        ("pool", "gpu-2"): Health("Unknown", "", taints=(taint,)),
    }
    for text, told in (("gpu-1", "write DEVICE=STATE"), ("gpu-1=Ill", "one of"), ("gpu-9=Healthy", "no device")):
        with pytest.raises(ValueError, match=told):
            parse_device_health(text, ["gpu-1"])


def test_partition_is_as_well_as_its_card_unless_it_is_named_itself() -> None:
    told = parse_device_health("gpu-1=Unhealthy:hot,gpu-1-mig-0=Unknown")
    found = [state_of(device, told)[0] for device in ("gpu-1", "gpu-1-mig-0", "gpu-1-mig-1", "gpu-11", "gpu-2")]
    assert found == ["Unhealthy", "Unknown", "Unhealthy", "Healthy", "Healthy"]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["simulated"], "--node: Required value"),
        (["simulated", "--node", "n"], "--profile: Required value"),
        (["simulated", "--node", "n", "--profile", "nothing"], 'no profile is named "nothing"'),
        (["simulated", "--node", "n", "--profile", "cpu"], '--profile: "cpu": has no devices'),
        (["check", "--node", "n"], "--driver-name: Required value"),
    ],
)
def test_invalid_driver_flags_exit_with_2(flags: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["driver", *flags]) == 2
    assert told in capsys.readouterr().err
