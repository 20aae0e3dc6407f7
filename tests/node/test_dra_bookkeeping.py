"""The claims of a node under crashes, refusals and pods that come and go: nothing stays, nothing is taken away."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from haru.kube.claim_uses import with_health
from haru.kube.errors import StatusError
from haru.node.dra import DevicesError, DriverAway, DriverFailed
from haru.node.dra.claim_info_cache import ClaimInfo, ClaimInfos, PreparedDevice
from haru.node.dra.containers import cdi_ids
from haru.node.dra.manager import DeviceManager
from haru.node.dra.metrics import DraMetrics
from haru.proto.dra_pb2 import Claim, Device

Obj = dict[str, Any]
NAMES = ("red", "green", "blue")
DRIVERS = ("a.example.com", "b.example.com")


class Crash(BaseException):
    """The node's process ends here."""


class Cluster:
    """Claims as the API server has them."""

    def __init__(self) -> None:
        self.claims: dict[str, Obj] = {}
        self.number = 0

    def make(self, name: str, drivers: Sequence[str]) -> None:
        self.number += 1
        results = [{"request": "r", "driver": d, "pool": "p", "device": f"{name}-{self.number}"} for d in drivers]
        status = {"allocation": {"devices": {"results": results}}, "reservedFor": []}
        metadata = {"name": name, "namespace": "default", "uid": f"{name}-{self.number}"}
        self.claims[name] = {"metadata": metadata, "status": status}

    async def get(self, kind: Any, name: str, namespace: str) -> Obj:
        if name not in self.claims:
            raise StatusError(404, "NotFound", f"{name} not found")
        return self.claims[name]


class Driver:
    """A driver that knows what it has prepared: UID -> the pods that were reserved then."""

    def __init__(self, name: str, world: Machine) -> None:
        self.name, self.world = name, world
        self.prepared: dict[str, str] = {}

    async def prepare(self, claims: Sequence[Claim]) -> dict[str, list[Device]]:
        self.world.die("before prepare")
        for claim in claims:
            others = [uid for uid, name in self.prepared.items() if name == claim.name and uid != claim.uid]
            assert not others, f"{claim.name} is prepared for the pods of another claim: {others}"
            self.prepared[claim.uid] = claim.name
        self.world.die("after prepare")
        self.world.refuse(self.name)
        return {claim.uid: [self._device(claim.uid)] for claim in claims}

    def _device(self, uid: str) -> Device:
        ids = [f"{self.name}/claim={uid}"]
        return Device(request_names=["r"], pool_name="p", device_name=uid, cdi_device_ids=ids)

    async def unprepare(self, claims: Sequence[Claim]) -> None:
        self.world.die("before unprepare")
        self.world.refuse(self.name)
        for claim in claims:
            self.prepared.pop(claim.uid, None)
        self.world.die("after unprepare")


class Machine(RuleBasedStateMachine):
    """`pods` are bound here: UID -> the claims they use. Rules are what happens on a node."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="haru-book-"))
        self.cluster = Cluster()
        self.drivers = {name: Driver(name, self) for name in DRIVERS}
        self.broken: set[str] = set()
        self.dies_at = ""
        self.pods: dict[str, Obj] = {}
        self.running: dict[str, set[tuple[str, str]]] = {}
        """Pods that were told that their claims are ready: (driver, claim)."""
        self.number = 0
        self.manager = self._manager()

    # -- the node ------------------------------------------------------------------------------------------------------

    def _manager(self) -> DeviceManager:
        made = DeviceManager(self.cluster, self, self.directory, "node-a", DraMetrics())  # type: ignore[arg-type]
        made.load()
        plain = made._checkpoint.store

        def store(content: Any) -> None:
            self.die("before write")
            plain(content)
            self.die("after write")

        made._checkpoint.store = store  # type: ignore[method-assign]
        return made

    def get(self, driver: str) -> Any:
        """As the registry does."""
        return self.drivers[driver]

    def die(self, place: str) -> None:
        if self.dies_at == place:
            self.dies_at = ""
            raise Crash

    def refuse(self, driver: str) -> None:
        if driver in self.broken:
            raise DriverFailed(f"{driver} says no")

    def act(self, work: Any) -> bool:
        """Whether it could be done; after a crash there is a new process."""
        try:
            asyncio.run(work)
        except DevicesError:
            return False
        except Crash:
            self.manager = self._manager()
            return False
        return True

    # -- what happens --------------------------------------------------------------------------------------------------

    @initialize()
    def claims(self) -> None:
        self.cluster.make("red", DRIVERS[:1])
        self.cluster.make("green", DRIVERS)
        self.cluster.make("blue", DRIVERS[1:])

    @rule(names=st.sets(st.sampled_from(NAMES), min_size=1, max_size=2))
    def bind(self, names: set[str]) -> None:
        self.number += 1
        uid = f"pod-{self.number}"
        entries = [{"name": name, "resourceClaimName": name} for name in sorted(names)]
        containers = [{"name": "main", "resources": {"claims": [{"name": name} for name in sorted(names)]}}]
        metadata = {"name": uid, "namespace": "default", "uid": uid}
        self.pods[uid] = {"metadata": metadata, "spec": {"resourceClaims": entries, "containers": containers}}
        for name in names:
            self.cluster.claims[name]["status"]["reservedFor"].append({"resource": "pods", "uid": uid, "name": uid})

        self.prepare_one(uid)

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def prepare(self, data: st.DataObject) -> None:
        """Again, or at last."""
        self.prepare_one(data.draw(st.sampled_from(sorted(self.pods))))

    def prepare_one(self, uid: str) -> None:
        if self.act(self.manager.prepare(self.pods[uid])):
            self.running[uid] = set()
            for entry in self.pods[uid]["spec"]["resourceClaims"]:
                claim = self.cluster.claims[entry["resourceClaimName"]]
                for result in claim["status"]["allocation"]["devices"]["results"]:
                    self.running[uid].add((result["driver"], claim["metadata"]["uid"]))

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.pods)))
        self.running.pop(uid, None)
        if self.act(self.manager.unprepare(uid)):
            self.forget(uid)

    def forget(self, uid: str) -> None:
        self.running.pop(uid, None)
        del self.pods[uid]
        for claim in self.cluster.claims.values():
            reserved = claim["status"]["reservedFor"]
            claim["status"]["reservedFor"] = [one for one in reserved if one["uid"] != uid]

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def vanish(self, data: st.DataObject) -> None:
        """A pod is deleted by force: the node does not hear of it in time, and its claim comes again."""
        uid = data.draw(st.sampled_from(sorted(self.pods)))
        names = [entry["resourceClaimName"] for entry in self.pods[uid]["spec"]["resourceClaims"]]
        self.forget(uid)
        for name in names:
            claim = self.cluster.claims[name]
            if not claim["status"]["reservedFor"]:
                drivers = [result["driver"] for result in claim["status"]["allocation"]["devices"]["results"]]
                self.cluster.make(name, drivers)

    @rule()
    def reconcile(self) -> None:
        self.act(self.manager.reconcile(set(self.pods)))

    @rule(driver=st.sampled_from(DRIVERS))
    def breaks_or_is_mended(self, driver: str) -> None:
        self.broken ^= {driver}

    @rule(place=st.sampled_from(["write", "prepare", "unprepare"]), when=st.sampled_from(["before", "after"]))
    def will_crash(self, place: str, when: str) -> None:
        """The next time that it comes there; or it is only started anew."""
        self.dies_at = f"{when} {place}"
        self.manager = self._manager()

    # -- what always holds -------------------------------------------------------------------------------------------

    @invariant()
    def the_checkpoint_can_be_read_and_says_what_is_known(self) -> None:
        fresh = self._manager()
        known = {(info.key, info.uid): info.pods for info in self.manager.claims()}
        assert {(info.key, info.uid): info.pods for info in fresh.claims()} == known

    @invariant()
    def whatever_is_prepared_is_known(self) -> None:
        known = {info.uid: set(info.drivers) for info in self.manager.claims()}
        for name, driver in self.drivers.items():
            assert all(name in known.get(uid, ()) for uid in driver.prepared)

    @invariant()
    def nothing_is_taken_from_a_pod_that_runs(self) -> None:
        for needed in self.running.values():
            assert all(uid in self.drivers[driver].prepared for driver, uid in needed)

    def teardown(self) -> None:
        """In the end nothing is left."""
        self.broken.clear()
        self.dies_at = ""
        self.manager = self._manager()
        for uid in sorted(self.pods):
            asyncio.run(self.manager.unprepare(uid))
        assert asyncio.run(self.manager.reconcile(())) == []
        assert [driver.prepared for driver in self.drivers.values()] == [{}, {}]
        assert self.manager.claims() == []
        shutil.rmtree(self.directory)


Machine.TestCase.settings = settings(max_examples=15, stateful_step_count=40, deadline=None)
TestClaimsOfANode = Machine.TestCase


@pytest.mark.nightly
def test_random_claim_operations_keep_bookkeeping_consistent_in_long_runs() -> None:
    class Longer(Machine):
        pass

    Longer.TestCase.settings = settings(max_examples=400, stateful_step_count=40, deadline=None)
    Longer.TestCase("runTest").runTest()


def test_unavailable_driver_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("haru.node.dra.manager._PAUSE_SECONDS", 0.0)
    asked = []

    class Registry:
        def get(self, driver: str) -> Any:
            return self

        async def unprepare(self, claims: Sequence[Claim]) -> None:
            asked.append(claims[0].uid)
            if len(asked) < 3:
                raise DriverAway("gone")

    manager = DeviceManager(None, Registry(), tmp_path, "node-a", DraMetrics())  # type: ignore[arg-type]
    manager._infos.begin(ClaimInfo("default", "c", "u", drivers={"d": ()}), "pod")
    asyncio.run(manager.unprepare("pod"))
    assert asked == ["u", "u", "u"]
    manager._infos.begin(ClaimInfo("default", "c", "v", drivers={"d": ()}), "pod")
    asked[:] = []

    async def away(claims: Sequence[Claim]) -> None:
        asked.append("v")
        raise DriverAway("gone")

    monkeypatch.setattr(Registry, "unprepare", staticmethod(away))
    with pytest.raises(DriverAway):
        asyncio.run(manager.unprepare("pod"))
    assert len(asked) == 4


def test_devices_of_prepared_claims_are_known_after_a_restart(tmp_path: Path) -> None:
    class Registry:
        def get(self, driver: str) -> Any:
            return self

        async def prepare(self, claims: Sequence[Claim]) -> dict[str, list[Device]]:
            return {claim.uid: [Device(request_names=["r"], pool_name="p", device_name="x")] for claim in claims}

    def manager() -> DeviceManager:
        return DeviceManager(None, Registry(), tmp_path, "node-a", DraMetrics())  # type: ignore[arg-type]

    asyncio.run(manager()._prepare([ClaimInfo("default", "c", "u", drivers={"d": ()})], "pod"))
    restarted = manager()
    restarted.load()
    assert restarted.pods_with_device("d", "p", "x") == ["pod"]


def test_claim_infos_round_trip_and_are_released_with_last_pod() -> None:
    infos = ClaimInfos()
    infos.begin(ClaimInfo("ns", "c", "u", drivers={"d": ()}), "p1")
    infos.begin(ClaimInfo("ns", "c", "u", drivers={"d": ()}), "p2")
    infos.prepared("ns/c", "d", [PreparedDevice("p", "d0", ("r",), ("v/c=d0",), "s")])
    infos.finish("ns/c")
    (again,) = ClaimInfos(orjson.loads(orjson.dumps(infos.told()))).all()
    assert again.drivers == infos.all()[0].drivers
    assert again.pods == {"p1", "p2"}
    assert not again.is_prepared
    assert infos.drivers_in_use() == {"<any>": 1, "d": 1}
    assert infos.release("ns/c", "p1") is None
    assert infos.release("ns/c", "p1") is None
    assert infos.release("ns/c", "p2") is infos.get("ns/c")


def test_claim_that_its_driver_has_not_given_back_is_prepared_again_for_the_next_pod() -> None:
    infos, claim = ClaimInfos(), ClaimInfo("ns", "c", "u", drivers={"d": ()})
    infos.begin(claim, "p1")
    infos.finish("ns/c")
    assert infos.release("ns/c", "p1") is not None
    assert not infos.begin(claim, "p2").is_prepared


def test_containers_get_devices_of_their_extended_resource_mappings() -> None:
    info = ClaimInfo("default", "special", "u")
    info.drivers["d"] = (
        PreparedDevice("p", "d0", ("container-0-request-0",), ("v/c=d0",)),
        PreparedDevice("p", "d1", ("container-1-request-0",), ("v/c=d1",)),
    )
    mappings = [
        {"containerName": "one", "resourceName": "x.com/card", "requestName": "container-0-request-0"},
        {"containerName": "two", "resourceName": "x.com/card", "requestName": "container-1-request-0"},
    ]
    pod = {
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "one"}, {"name": "two"}, {"name": "three"}]},
        "status": {"extendedResourceClaimStatus": {"resourceClaimName": "special", "requestMappings": mappings}},
    }
    found = cdi_ids(pod, {"default/special": info}.get)
    assert found == {"one": ("v/c=d0",), "two": ("v/c=d1",)}


def test_health_replaces_previous_resource_status() -> None:
    statuses = [{"name": "a", "allocatedResourcesStatus": ["old"]}, {"name": "b"}]
    told: dict[str, list[Obj]] = {"b": [{"name": "claim:c"}]}
    assert with_health(statuses, told) == [{"name": "a"}, {"name": "b", "allocatedResourcesStatus": told["b"]}]
