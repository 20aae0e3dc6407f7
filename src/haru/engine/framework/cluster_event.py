"""Name the changes of a cluster that may make a rejected pod schedulable.

Source: kube-scheduler's ClusterEvent and its action types (KEP-4247).
"""

from __future__ import annotations

from enum import Enum, auto


class ClusterEvent(Enum):
    """What has changed. A plugin lists the events that may undo its rejections."""

    NODE_ADD = auto()
    NODE_ALLOCATABLE = auto()
    NODE_LABEL = auto()
    NODE_TAINT = auto()
    NODE_UNSCHEDULABLE = auto()
    NODE_DECLARED_FEATURE = auto()
    POD_ADD = auto()
    """A pod came to a node, or is nominated to one."""
    POD_DELETE = auto()
    """A pod left its node, or lost its nomination."""
    POD_NOMINATION = auto()
    """A waiting pod lost the node that it was promised, and with it devices that no claim has yet."""
    POD_SCALE = auto()
    """A pod on a node requests other amounts than before."""
    POD_TERMINATING = auto()
    """A pod on a node was marked for deletion."""
    POD_BOUND = auto()
    DEVICES = auto()
    """Devices were published, freed or lost a taint."""
    DEVICE_CLASS = auto()
    NAMESPACE = auto()
    """The labels of a namespace."""
    SELECTOR = auto()
    """The selector of a Service or of a controller of pods."""
    VOLUME = auto()
    """A volume, a volume claim, or what says where volumes can be attached."""
    STORAGE = auto()
    """What says where volumes can be provisioned: a CSIDriver or a CSIStorageCapacity."""


NODE_UPDATES = frozenset(
    {
        ClusterEvent.NODE_ALLOCATABLE,
        ClusterEvent.NODE_LABEL,
        ClusterEvent.NODE_TAINT,
        ClusterEvent.NODE_UNSCHEDULABLE,
        ClusterEvent.NODE_DECLARED_FEATURE,
    }
)
