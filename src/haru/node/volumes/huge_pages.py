"""emptyDir volumes of huge pages: the size of their pages.

Source: the kubelet's rules for the media `HugePages` and `HugePages-SIZE`, as behaviour.
"""

from __future__ import annotations

from haru.kube.meta import Obj
from haru.kube.pod_environment.fields import ConfigError
from haru.kube.quantity import parse_quantity

MEDIUM = "HugePages"


def page_size(pod: Obj, medium: str) -> str:
    """The size of pages, as resources name it: that of the medium, or the only one of the pod. Raises `ConfigError`."""
    spec = pod["spec"]
    holders = (spec, *(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    names = {name for one in holders for name in ((one.get("resources") or {}).get("requests") or {})}
    sizes = {name.removeprefix("hugepages-") for name in names if name.startswith("hugepages-")}
    if wanted := medium.removeprefix(MEDIUM).removeprefix("-"):
        sizes = {size for size in sizes if not parse_quantity(size).compare(parse_quantity(wanted))}
    elif len(sizes) > 1:
        raise ConfigError(f"medium: {medium} can't be used if container requests multiple huge page sizes")
    if not sizes:
        raise ConfigError(
            f"medium {medium}: hugePages storage requested, but there is no resource request for huge pages"
        )
    return str(sizes.pop())
