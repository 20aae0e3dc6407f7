"""What the admission plugins about nodes that are not ready add: a taint to the node, tolerations to pods.

A node that is registered together with a Ready condition (as simulated ones are) is not tainted; 1.36 taints it too,
and its node-lifecycle controller removes the taint at once.
Source: admission plugins TaintNodesByCondition and DefaultTolerationSeconds, as behaviour.
"""

from __future__ import annotations

from haru.apiserver.admission.accounts import keep_token, name_account
from haru.apiserver.object_store import Obj
from haru.apiserver.request.call import Call
from haru.kube.meta import get_condition

TOLERATION_SECONDS = 300
_NOT_READY, _UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"


async def taint_until_ready(call: Call, node: Obj) -> None:
    """Taint a new node that does not report itself ready."""
    ready = get_condition(node, "Ready")
    if ready is not None and ready.get("status") == "True":
        return
    spec: Obj = node.setdefault("spec", {})
    taints = list(spec.get("taints") or ())
    if not any(taint.get("key") == _NOT_READY and taint.get("effect") == "NoSchedule" for taint in taints):
        spec["taints"] = [*taints, {"key": _NOT_READY, "effect": "NoSchedule"}]


async def add_default_tolerations(call: Call, pod: Obj) -> None:
    """Tolerate a node that is not ready or unreachable for 300 s, unless the pod has tolerations for these taints."""
    spec = pod["spec"]
    tolerations = list(spec.get("tolerations") or ())
    for key in (_NOT_READY, _UNREACHABLE):
        if not any(_covers(toleration, key) for toleration in tolerations):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECONDS}
            )
    spec["tolerations"] = tolerations


def _covers(toleration: Obj, key: str) -> bool:
    return toleration.get("key", "") in (key, "") and toleration.get("effect", "") in ("NoExecute", "")


async def keep_defaults(call: Call, new: Obj, old: Obj) -> None:
    """Restore what admission has added to a pod and a client that replaces it leaves out."""
    name_account(new["spec"])
    keep_token(new["spec"], old.get("spec") or {})
    await add_default_tolerations(call, new)
