"""What every pod gets: a service account, and 300 seconds of patience with a node that fails.

Sources: admission plugins ServiceAccount and DefaultTolerationSeconds, as behaviour.
"""

from __future__ import annotations

from typing import Any

from haru.apiserver.call import Call
from haru.kube.errors import forbidden_error

Obj = dict[str, Any]

DEFAULT_ACCOUNT = "default"
PATIENCE_SECONDS = 300
_NODE_FAULTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


async def set_service_account(call: Call, pod: Obj) -> None:
    """A pod that names no service account runs as the namespace's default one; the account must exist."""
    spec = pod["spec"]
    name = _name_account(spec)
    account = await call.core.peek("", "serviceaccounts", call.namespace, name)
    if account is None and name == DEFAULT_ACCOUNT:
        await _make_default(call)
    elif account is None:
        where = f"{call.namespace}/{name}"
        why = f'error looking up service account {where}: serviceaccount "{name}" not found'
        raise forbidden_error("", "pods", str(pod["metadata"].get("name") or ""), why)
    elif account.get("imagePullSecrets") and not spec.get("imagePullSecrets"):
        spec["imagePullSecrets"] = list(account["imagePullSecrets"])


def _name_account(spec: Obj) -> str:
    """The account by its name and by the name's older spelling."""
    name = str(spec.get("serviceAccountName") or spec.get("serviceAccount") or DEFAULT_ACCOUNT)
    spec["serviceAccountName"] = spec["serviceAccount"] = name
    return name


async def _make_default(call: Call) -> None:
    """The controller will make the account of a young namespace any moment: whoever is faster does it."""
    if call.dry_run:
        return
    from haru.apiserver.bootstrap import ensure_object  # writes, and writing asks admission

    metadata = {"name": DEFAULT_ACCOUNT, "namespace": call.namespace}
    await ensure_object(call.core, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})


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
    _name_account(new["spec"])
    await add_default_tolerations(call, new)
