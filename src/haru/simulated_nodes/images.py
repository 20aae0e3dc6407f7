"""Which images a simulated node cannot pull, and how kubelets tell it. Pure.

Simulated nodes pull nothing: an image is there unless its annotation or its name says that it is not.
Source: kubelet `image_manager`, as behaviour.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from haru.kube.image_names import ImageNameError, parse_image_name
from haru.kube.meta import Obj
from haru.kube.simulated_containers.simulation import is_annotated, setting

FAIL_IMAGE_PULL: Final = "fail-image-pull"
ERR_IMAGE_PULL: Final = "ErrImagePull"
IMAGE_PULL_BACK_OFF: Final = "ImagePullBackOff"
_UNKNOWN_HOST: Final = ".invalid"
"""No registry has a name under this domain (RFC 2606)."""
_MISSING_NAMES: Final = ("invalid", "invalid-image")
_MISSING_ENDS: Final = ("doesnt-exist", "does-not-exist", "nonexistent", "non-existent")
_MISSING_TAGS: Final = ("404", "does-not-exist", "non-existent", "nonexistent", "not-found")


class PullProblem(NamedTuple):
    """Why an image is not there: the reason of the waiting container, its message, and the reason of the event.

    Only what failed as ErrImagePull is tried again.
    """

    reason: str
    message: str
    event: str = "Failed"


def pull_problem(pod: Obj, container: Obj) -> PullProblem | None:
    """Why the image of a container cannot be pulled; None if it can."""
    image = container.get("image") or ""
    said = setting(pod, container["name"], FAIL_IMAGE_PULL) if is_annotated(pod) else None
    try:
        cause = f"{image}: not found" if said == "true" else said if said and said != "false" else _cause(image)
    except ImageNameError as error:
        text = f'Failed to apply default image tag "{image}": {error}'
        return PullProblem("InvalidImageName", text, "InspectFailed")
    if not cause:
        return None
    if container.get("imagePullPolicy") == "Never":
        text = f'Container image "{image}" is not present with pull policy of Never'
        return PullProblem("ErrImageNeverPull", text, "ErrImageNeverPull")
    prefix = f'failed to pull and unpack image "{image}": failed to resolve reference "{image}": '
    return PullProblem(ERR_IMAGE_PULL, prefix + cause)


@lru_cache(maxsize=4096)
def _cause(image: str) -> str:
    """What is wrong with an image by its name; empty if nothing is. Raises `ImageNameError`."""
    if not image:
        return ""
    domain, path, tag = parse_image_name(image)
    host = domain.partition(":")[0]
    if host.endswith(_UNKNOWN_HOST) or host.startswith("invalid."):
        manifest = f"https://{domain}/v2/{path}/manifests/{tag or 'latest'}"
        return f'failed to do request: Head "{manifest}": dial tcp: lookup {host}: no such host'
    name = path.rpartition("/")[2]
    if tag in _MISSING_TAGS or name in _MISSING_NAMES or name.endswith(_MISSING_ENDS):
        return f"{image}: not found"
    return ""
