"""AppArmor profiles of containers from before there were fields: a new pod's annotations become the fields.

Source: the strategy of pods in 1.36, as behaviour (KEP-24).
"""

from __future__ import annotations

from typing import Final

from haru.kube.meta import Obj

ANNOTATION: Final = "container.apparmor.security.beta.kubernetes.io/"
"""What the annotation for a container begins with; its name follows."""
_LOCALHOST: Final = "localhost/"
_LONGEST: Final = 4095


def profile_of(text: str) -> Obj | None:
    """The profile that an annotation names; None if it is none."""
    if text in ("unconfined", "runtime/default"):
        return {"type": "Unconfined" if text == "unconfined" else "RuntimeDefault"}
    name = text.removeprefix(_LOCALHOST)
    if name == text or not name or name != name.strip() or len(name.encode()) > _LONGEST:
        return None
    return {"type": "Localhost", "localhostProfile": name}


def take_over_annotations(pod: Obj) -> list[str]:
    """Write the fields that a new pod's annotations stand for into its spec; return the annotations that nobody needs.

    The spec is changed in place, its containers are not.
    """
    annotations, spec = pod["metadata"].get("annotations") or {}, pod.get("spec") or {}
    if not any(key.startswith(ANNOTATION) for key in annotations) or (spec.get("os") or {}).get("name") == "windows":
        return []
    whole = (spec.get("securityContext") or {}).get("appArmorProfile")
    found: list[str] = []
    for member in ("initContainers", "containers"):
        if spec.get(member):
            spec[member] = [_confined(container, annotations, whole, found) for container in spec[member]]
    return found


def _confined(container: Obj, annotations: Obj, whole: Obj | None, found: list[str]) -> Obj:
    context, key = container.get("securityContext") or {}, f"{ANNOTATION}{container.get('name') or ''}"
    if key not in annotations or context.get("appArmorProfile") is not None:
        return container
    profile = profile_of(annotations[key])
    if profile is not None and profile == whole:
        return container
    found.append(key)
    return container if profile is None else {**container, "securityContext": {**context, "appArmorProfile": profile}}
