"""The simulated nodes of `haru up`, the driver of their devices, and the provisioner of their volumes."""

from __future__ import annotations

from collections.abc import Mapping

from haru.drivers.simulated.driver import SimulatedDriver
from haru.drivers.simulated.objects import FEATURES
from haru.embedded.gates import gates_of
from haru.embedded.options import UpOptions
from haru.embedded.part import Setting, Tasks
from haru.simulated_nodes.fleet import Fleet, FleetOptions
from haru.simulated_nodes.provisioner import SimulatedProvisioner


class NodesPart(Tasks):
    """Runs also where no nodes are asked for: whoever creates a Node with a profile's label has one."""

    def __init__(self, options: UpOptions) -> None:
        super().__init__()
        self._features = tuple(name for name in FEATURES if gates_of(options).enabled(name))
        self._is_alone = options.simulated_nodes
        self._revisions: dict[str, int] = {}

    async def start(self, setting: Setting) -> None:
        """Start them; they are ready when all nodes are up and all devices published."""
        clients, clock = setting.clients, setting.clock
        options = FleetOptions(features=self._features)
        fleet = Fleet(clients.component("fleet"), setting.nodes, clock, clients=clients.node, options=options)
        client, is_alone = clients.component("driver"), self._is_alone
        driver = SimulatedDriver(client, setting.nodes, clock=clock, is_alone=is_alone)
        provisioner = SimulatedProvisioner(clients.component("provisioner"), clock)
        self._run("provisioner", provisioner.run())
        self._run("fleet", fleet.run())
        self._run("driver", driver.run())
        await self._until_ready([provisioner.ready.wait, fleet.ready.wait, driver.ready.wait])
        devices = {"ResourceSlice": driver.revision, "DeviceClass": driver.class_revision}
        self._revisions = {"Node": fleet.revision, **devices}

    def revisions(self) -> Mapping[str, int]:
        """The newest node, slice and device class."""
        return self._revisions


part = NodesPart
