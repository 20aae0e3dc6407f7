"""An object as YAML, for who may get it."""

from __future__ import annotations

from haru.dashboard.asked import Answer, Asked
from haru.dashboard.signin.viewer import OWNER
from haru.engine import Snapshot
from haru.engine.state import WATCHED_KINDS
from haru.kube.kinds import Kind, known_kind
from haru.kube.meta import Obj
from haru.kube.yaml import dump_all

_KINDS: dict[str, Kind] = {kind: known_kind(api_version, kind) for api_version, kind in WATCHED_KINDS}
CLUSTER = "-"
"""What stands for the namespace of objects that are in none."""


async def yaml_page(asked: Asked) -> Answer | None:
    """Show an object; None if there is none, or the viewer may not get it."""
    kind, namespace, name = (asked.parts[part] for part in ("kind", "namespace", "name"))
    known = _KINDS.get(kind)
    obj = _object(asked.view.snapshot, kind, "" if namespace == CLUSTER else namespace, name)
    if known is None or obj is None:
        return None
    viewer = asked.viewer or OWNER
    group = known.api_version.rpartition("/")[0]
    if not await viewer.allowed("get", group, known.plural, "" if namespace == CLUSTER else namespace):
        return None
    text = dump_all([{"apiVersion": known.api_version, "kind": kind, **obj}])
    return Answer(f"{kind} {name}", {"text": text, "kind": kind, "namespace": namespace, "name": name})


def _object(snapshot: Snapshot, kind: str, namespace: str, name: str) -> Obj | None:
    path = f"{namespace}/{name}" if namespace else name
    if kind == "Node":
        info = snapshot.nodes.get(path)
        return info.spec.obj if info is not None and info.present else None
    if kind == "Pod":
        pod = snapshot.pods.get(path)
        return pod.obj if pod is not None else None
    return snapshot.claims.get(path) if kind == "ResourceClaim" else snapshot.objects(kind).get(path)
