"""What every pod gets: 300 seconds of patience with a node that fails.

Source: admission plugin DefaultTolerationSeconds, as behaviour.
"""

from __future__ import annotations

from typing import Any

from haru.apiserver.admission.accounts import keep_token, name_account
from haru.apiserver.request.call import Call

Obj = dict[str, Any]

PATIENCE_SECONDS = 300
_NODE_FAULTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


async def add_default_tolerations(call: Call, pod: Obj) -> None:
    """Tolerate a node that is not ready or unreachable for a while, unless the pod says how long itself."""
    spec = pod["spec"]
    tolerations = list(spec.get("tolerations") or ())
    for key in _NODE_FAULTS:
        if not any(_covers(toleration, key) for toleration in tolerations):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": PATIENCE_SECONDS}
            )
    spec["tolerations"] = tolerations


def _covers(toleration: Obj, key: str) -> bool:
    return toleration.get("key", "") in (key, "") and toleration.get("effect", "") in ("NoExecute", "")


async def keep_defaults(call: Call, new: Obj, old: Obj) -> None:
    """A client that replaces a pod by its own manifest does not know of what was added."""
    name_account(new["spec"])
    keep_token(new["spec"], old.get("spec") or {})
    await add_default_tolerations(call, new)
