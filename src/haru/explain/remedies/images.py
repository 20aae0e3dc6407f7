"""An image that cannot be pulled: the name that was probably meant, or who can let it be pulled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from haru.engine import Options, Reason, Snapshot
from haru.engine.state import PodInfo
from haru.explain.changes import patch
from haru.explain.explanation import Remedy
from haru.explain.remedies.commands import set_command
from haru.explain.remedies.pod_changes import pod_changes, with_container
from haru.kube.decoding import suggest_name
from haru.kube.meta import Obj

_REFUSED: Final = ("unauthorized", "denied", "forbidden", "401", "403", "authentication required")
_UNREACHABLE: Final = ("no such host", "i/o timeout", "connection refused", "network is unreachable", "deadline")
_RATE_LIMITED: Final = ("toomanyrequests", "too many requests", "429")


def image_remedies(snapshot: Snapshot, pod: PodInfo, reason: Reason, options: Options) -> Iterator[Remedy]:
    """An image that runs in the namespace and has nearly this name, and what the registry's answer asks for."""
    name, image = str(reason.data["container"]), str(reason.data["image"])
    running = _running_images(snapshot, pod.key.namespace)
    close = _other_tag(image, running) or suggest_name(image, running)
    if close:
        yield _other_image(snapshot, pod, name, image, close)
    text, costs = _by_answer(image, reason.message.lower(), pod.node)
    yield Remedy("ProvideImage", text, (), 4, False, costs)


def _running_images(snapshot: Snapshot, namespace: str) -> Counter[str]:
    """The images that nodes have pulled for pods of a namespace, by the number of containers that run them."""
    found: Counter[str] = Counter()
    for path, pod in snapshot.pods.items():
        if not path.startswith(f"{namespace}/") or pod.terminal:
            continue
        images = {one["name"]: one.get("image") or "" for one in pod.spec.get("containers") or ()}
        for status in pod.status.get("containerStatuses") or ():
            if "running" in (status.get("state") or {}):
                found[images.get(status["name"], "")] += 1
    found.pop("", None)
    return found


def _repository(image: str) -> str:
    """The image without its tag and digest."""
    plain = image.partition("@")[0]
    head, slash, tail = plain.rpartition("/")
    return f"{head}{slash}{tail.partition(':')[0]}"


def _other_tag(image: str, running: Counter[str]) -> str:
    """The same repository with another tag, the one that most containers run."""
    same = Counter({one: count for one, count in running.items() if _repository(one) == _repository(image)})
    return same.most_common(1)[0][0] if same else ""


def _other_image(snapshot: Snapshot, pod: PodInfo, name: str, image: str, close: str) -> Remedy:
    """The image of a pod can be changed in place; with a controller it is the template's, or the next pod has it again.

    It is confirmed where the node of the pod, or any pod with the same pull secrets, has pulled it.
    """

    def change(spec: Obj) -> Obj:
        return with_container(spec, name, lambda one: {**one, "image": close} if one.get("image") == image else one)

    text = f"name image {close} in place of {image}: did you mean that?"
    changes: tuple[Obj, ...]
    if pod.controller is None:
        after = change(dict(pod.spec))
        parts = {part: after[part] for part in ("initContainers", "containers") if after.get(part)}
        changes = (patch("v1", "Pod", pod.key.name, {"spec": parts}, pod.key.namespace),)
        costs = ""
    else:
        changes, costs = pod_changes(snapshot, [PodInfo.of({**pod.obj, "spec": change(dict(pod.spec))})], change)
    command = set_command(snapshot, pod, changes, "image", f"{name}={close}")
    return Remedy("CorrectName", text, changes, 0, _is_pulled(snapshot, pod, close), costs, command)


def _is_pulled(snapshot: Snapshot, pod: PodInfo, image: str) -> bool:
    secrets = pod.spec.get("imagePullSecrets") or []
    alike = (p for p in snapshot.pods.values() if p.key.namespace == pod.key.namespace and not p.terminal)
    return any(
        any(one.get("image") == image for one in p.spec.get("containers") or ())
        and (p.node == pod.node or (p.spec.get("imagePullSecrets") or []) == secrets)
        and p.status.get("phase") == "Running"
        for p in alike
    )


def _by_answer(image: str, answer: str, node: str) -> tuple[str, str]:
    """What to do, and why it could not be tried, by the words of the registry or of the container runtime."""
    registry = image.partition("/")[0] if "." in image.partition("/")[0] else "docker.io"
    if any(word in answer for word in _RATE_LIMITED):
        return f"wait, or pull {image} from a mirror of {registry}", "the registry limits how often it is asked"
    if any(word in answer for word in _UNREACHABLE):
        return f"let node {node} reach the registry {registry}, or name another one", "the registry did not answer"
    if any(word in answer for word in _REFUSED):
        text = f"name a Secret for {registry} in the imagePullSecrets of the pod or of its ServiceAccount"
        return text, "the registry let nobody pull it without credentials, or has no such repository"
    return f"push image {image}, or name one that exists", "which image is meant is for its author to say"
