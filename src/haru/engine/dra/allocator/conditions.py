"""The conditions that a device must meet for a request: one ordered list for the allocator and for every explanation.

The allocator's candidates are the devices that meet all of them; a funnel counts the devices that are left after each;
a refusal names the first one after which too few are left. Constraints between devices are no condition of a single
device: the search checks them.
Source: KEP-4381, 4815 (counters, node selection), 5007 (binding conditions), 5055 (taints), 5075 (capacity); the order
is kube-scheduler's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from haru.engine.dra.allocator.consumable_capacity import fits
from haru.engine.dra.allocator.node_devices import AllocatedNodeDevices
from haru.engine.dra.diagnosis.reasons import StageName
from haru.engine.dra.model.claims import SubRequest
from haru.engine.dra.model.model import Device, Features
from haru.engine.dra.placement import usable_on
from haru.engine.dra.pools.device_table import DeviceTable
from haru.engine.dra.taints import untolerated

Expressions = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class SelectorCondition:
    """The CEL selectors of a class or a request; the allocator evaluates them together (`CompiledSelector`)."""

    stage: StageName
    expressions: Callable[[SubRequest], Expressions]


@dataclass(frozen=True, slots=True)
class DeviceCondition:
    """A condition that a device meets or breaks by itself, whatever the node and whatever is allocated.

    `can_fail` tells whether some device of a table may break it. `selects`: in mode All the devices that break it are
    not meant; those that break another condition are, and cannot be had. `hides_errors`: a selector that fails on a
    device which breaks it does not count.
    """

    stage: StageName
    met: Callable[[Device, SubRequest, Features], bool]
    can_fail: Callable[[DeviceTable, SubRequest, Features], bool]
    selects: bool = False
    hides_errors: bool = False

    def holds(self, devices: AllocatedNodeDevices, position: int, ask: SubRequest) -> bool:
        """Tell whether the device at a position meets it."""
        return self.met(devices.devices[position], ask, devices.features)

    def can_fail_in(self, devices: AllocatedNodeDevices, number: int, ask: SubRequest) -> bool:
        """Tell whether some device of a view may break it."""
        return self.can_fail(devices.views[number].table, ask, devices.features)


@dataclass(frozen=True, slots=True)
class NodeCondition:
    """A condition that depends on the node, or on what is allocated.

    `can_fail_in` tells whether some device of a view may break it. `searched`: the search checks it too, after each
    device that it takes, so a candidate need not meet it.
    """

    stage: StageName
    holds: Callable[[AllocatedNodeDevices, int, SubRequest], bool]
    can_fail_in: Callable[[AllocatedNodeDevices, int, SubRequest], bool]
    selects: bool = False
    hides_errors: bool = False
    searched: bool = False


SingleCondition = DeviceCondition | NodeCondition
Condition = SelectorCondition | SingleCondition


def _has_tolerable_taints(device: Device, ask: SubRequest, features: Features) -> bool:
    return not device.taints or not untolerated(device.taints, ask.tolerations)


def _is_within_counters(devices: AllocatedNodeDevices, position: int, ask: SubRequest) -> bool:
    left = devices.counters_left[devices.view_of[position]]
    is_short = any(left[counter] < amount for counter, amount in devices.charge(position))
    return not is_short or devices.draws_no_more(position)


def _is_in_sound_pool(devices: AllocatedNodeDevices, position: int, ask: SubRequest) -> bool:
    """Tell whether the pool is not overdrawn; a shareable device that is in use has been charged already."""
    if not devices.devices[position].consumes or devices.view_of[position] not in devices.overdrawn:
        return True
    return devices.draws_no_more(position)


def _fits_beside_shares(devices: AllocatedNodeDevices, position: int, ask: SubRequest) -> bool:
    return fits(devices.devices[position].shape, ask.wanted, devices.consumed.get(position))


BINDING_GATE = DeviceCondition(
    "offered",
    met=lambda device, ask, features: device.binding is None or not device.binding.conditions,
    can_fail=lambda table, ask, features: table.conditional and not features.DeviceBindingAndStatus,
    selects=True,
    hides_errors=True,
)
CAPACITY = DeviceCondition(
    "capacity",
    met=lambda device, ask, features: fits(device.shape, ask.wanted, None),
    can_fail=lambda table, ask, features: features.ConsumableCapacity and bool(ask.wanted or table.rationed),
    selects=True,
)
FREE = NodeCondition(
    "free",
    holds=lambda devices, position, ask: devices.is_free(position),
    can_fail_in=lambda devices, number, ask: (
        not ask.admin and bool(devices.uses[number].devices or devices.uses[number].shares)
    ),
    hides_errors=True,
)

CONDITIONS: tuple[Condition, ...] = (
    BINDING_GATE,
    DeviceCondition(
        "offered",
        met=lambda device, ask, features: not device.consumes,
        can_fail=lambda table, ask, features: table.consuming and not features.PartitionableDevices,
    ),
    SelectorCondition("class", lambda ask: ask.selection.class_expressions),
    SelectorCondition("selector", lambda ask: ask.selection.request_expressions),
    NodeCondition(
        "node",
        holds=lambda devices, position, ask: usable_on(devices.devices[position], devices.node),
        can_fail_in=lambda devices, number, ask: devices.views[number].table.placed,
        selects=True,
    ),
    CAPACITY,
    NodeCondition(
        "capacity",
        holds=_fits_beside_shares,
        can_fail_in=lambda devices, number, ask: (
            devices.features.ConsumableCapacity and bool(devices.uses[number].shares)
        ),
        selects=True,
    ),
    DeviceCondition(
        "taints",
        met=_has_tolerable_taints,
        can_fail=lambda table, ask, features: features.DeviceTaints and table.tainted,
    ),
    FREE,
    NodeCondition(
        "counters",
        holds=_is_in_sound_pool,
        can_fail_in=lambda devices, number, ask: (
            devices.features.PartitionableDevices and bool(devices.views[number].totals) and number in devices.overdrawn
        ),
    ),
    NodeCondition(
        "counters",
        holds=_is_within_counters,
        can_fail_in=lambda devices, number, ask: bool(devices.views[number].totals),
        searched=True,
    ),
)

DEVICE_CONDITIONS = tuple(c for c in CONDITIONS if isinstance(c, DeviceCondition))
NODE_CONDITIONS = tuple(c for c in CONDITIONS if isinstance(c, NodeCondition) and not c.searched)
_HIDING = tuple(condition for condition in NODE_CONDITIONS if condition.hides_errors)
_NOT_HIDING = tuple(condition for condition in NODE_CONDITIONS if not condition.hides_errors)
SELECTING_CONDITIONS = tuple(c for c in CONDITIONS if not isinstance(c, SelectorCondition) and c.selects)
_EVERY: tuple[SingleCondition, ...] = (*DEVICE_CONDITIONS, *NODE_CONDITIONS)
# Whether a device is free changes during the search, which checks it.
SPOILING_CONDITIONS = tuple(c for c in _EVERY if not c.selects and c is not FREE)

Check = Callable[[int], bool]
Met = Callable[[Device, SubRequest, Features], bool]


def check_of(
    conditions: Iterable[SingleCondition], devices: AllocatedNodeDevices, number: int, ask: SubRequest
) -> Check | None:
    """Bind those of the conditions that a device of one view may break, as a check of a position."""
    failing = [c.holds for c in conditions if c.can_fail_in(devices, number, ask)]
    if len(failing) == 1:
        (only,) = failing
        return lambda position: only(devices, position, ask)
    if not failing:
        return None

    def check(position: int) -> bool:
        return all(holds(devices, position, ask) for holds in failing)

    return check


def node_checks(devices: AllocatedNodeDevices, number: int, ask: SubRequest) -> tuple[Check | None, Check | None]:
    """Checks of a position for candidates in one view: the conditions that hide a selector's error, and the others."""
    view, use = devices.views[number], devices.uses[number]
    if not (use.shares or view.table.placed):
        if not use.devices and not view.overdrawn:
            return None, None
        if not view.totals:  # only FREE may fail
            return (None if ask.admin else devices.is_free), None
    return check_of(_HIDING, devices, number, ask), check_of(_NOT_HIDING, devices, number, ask)


def device_checks(table: DeviceTable, ask: SubRequest, features: Features) -> tuple[Sequence[Met], Sequence[Met]]:
    """The conditions that some device of a table may break by itself, in the same two parts."""
    if table.unconditional and not ask.wanted and features.PartitionableDevices:
        return (), ()
    failing = [c for c in DEVICE_CONDITIONS if c.can_fail(table, ask, features)]
    return [c.met for c in failing if c.hides_errors], [c.met for c in failing if not c.hides_errors]
