"""List the plugins that take arguments, each with the function that reads them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from haru.engine.framework.arguments import ReadArguments
from haru.engine.plugins.defaultpreemption import arguments as defaultpreemption
from haru.engine.plugins.dynamicresources import arguments as dynamicresources
from haru.engine.plugins.interpodaffinity import arguments as interpodaffinity
from haru.engine.plugins.nodeaffinity import arguments as nodeaffinity
from haru.engine.plugins.noderesources.arguments import read_balanced_arguments, read_fit_arguments
from haru.engine.plugins.podtopologyspread import arguments as podtopologyspread
from haru.engine.plugins.volumebinding import arguments as volumebinding

ARGUMENT_READERS: Mapping[str, ReadArguments] = MappingProxyType(
    {
        "NodeResourcesFit": read_fit_arguments,
        "NodeResourcesBalancedAllocation": read_balanced_arguments,
        "PodTopologySpread": podtopologyspread.read_arguments,
        "NodeAffinity": nodeaffinity.read_arguments,
        "InterPodAffinity": interpodaffinity.read_arguments,
        "DefaultPreemption": defaultpreemption.read_arguments,
        "VolumeBinding": volumebinding.read_arguments,
        "DynamicResources": dynamicresources.read_arguments,
    }
)
