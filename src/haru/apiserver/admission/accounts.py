"""ServiceAccount: as whom a pod runs, what it may read of secrets, and the token that its containers find.

Source: admission plugin ServiceAccount, as behaviour; its words as in 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator

from haru.apiserver.auth.node_graph import MIRROR
from haru.apiserver.registry.loopback import Loopback
from haru.apiserver.request.call import Call
from haru.kube.errors import StatusError, forbidden_error
from haru.kube.meta import Obj, told_name
from haru.kube.names import short_hash

DEFAULT_ACCOUNT = "default"
ENFORCE = "kubernetes.io/enforce-mountable-secrets"
VOLUME = "kube-api-access-"
MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
TOKEN_SECONDS = 3607
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_SUFFIX = 5


async def set_service_account(call: Call, pod: Obj) -> None:
    """A pod that names no service account runs as the namespace's default one; the account must exist."""
    spec = pod["spec"]
    if MIRROR in (pod["metadata"].get("annotations") or {}):
        _check_mirror(call, pod)
        return
    name = name_account(spec)
    account = await call.objects.peek("", "serviceaccounts", call.namespace, name)
    if account is None and name == DEFAULT_ACCOUNT:
        account = await _make_default(call)
    elif account is None:
        where = f"{call.namespace}/{name}"
        raise _refusal(call, pod, f'error looking up service account {where}: serviceaccount "{name}" not found')
    if _automounts(account, spec):
        _mount_token(spec, call.namespace, name)
    if account.get("imagePullSecrets") and not spec.get("imagePullSecrets"):
        spec["imagePullSecrets"] = list(account["imagePullSecrets"])
    _check_secrets(call, pod, account, ("containers", "initContainers"))


async def check_ephemeral_containers(call: Call, pod: Obj, old: Obj) -> None:
    """Check the secrets that new ephemeral containers of a pod use."""
    name = (pod.get("spec") or {}).get("serviceAccountName") or DEFAULT_ACCOUNT
    account = await call.objects.peek("", "serviceaccounts", call.namespace, name)
    if account is not None:
        _check_secrets(call, pod, account, ("ephemeralContainers",))


def name_account(spec: Obj) -> str:
    """The account by its name and by the name's older spelling."""
    name = str(spec.get("serviceAccountName") or spec.get("serviceAccount") or DEFAULT_ACCOUNT)
    spec["serviceAccountName"] = spec["serviceAccount"] = name
    return name


async def _make_default(call: Call) -> Obj:
    """The controller will make the account of a young namespace any moment: whoever is faster does it."""
    metadata = {"name": DEFAULT_ACCOUNT, "namespace": call.namespace}
    account: Obj = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    if not call.dry_run:
        await Loopback(call.objects, call.admission).ensure(account)
    return account


def _check_mirror(call: Call, pod: Obj) -> None:
    """Mirror pods show what a node runs from a file: nothing of the API is theirs."""
    spec = pod["spec"]
    if spec.get("serviceAccountName"):
        raise _refusal(call, pod, "a mirror pod may not reference service accounts")
    for volume in spec.get("volumes") or ():
        if volume.get("secret") is not None:
            raise _refusal(call, pod, "a mirror pod may not reference secrets")
        for source in (volume.get("projected") or {}).get("sources") or ():
            if source.get("serviceAccountToken") is not None:
                raise _refusal(call, pod, "a mirror pod may not use ServiceAccountToken volume projections")


# --- the token


def _automounts(account: Obj, spec: Obj) -> bool:
    """Whether containers are given a token: the pod says, else the account; otherwise they are."""
    for holder in (spec, account):
        if holder.get("automountServiceAccountToken") is not None:
            return bool(holder["automountServiceAccountToken"])
    return True


def _mount_token(spec: Obj, namespace: str, account: str) -> None:
    """A volume with a token, the cluster's authority and the namespace, mounted where clients look for it.

    The volume's name is the same for all pods of an account, so that pods that are alike stay alike.
    """
    volumes = list(spec.get("volumes") or ())
    names = [str(volume.get("name")) for volume in volumes]
    found = next((name for name in names if name.startswith(VOLUME)), None)
    name = found or VOLUME + short_hash(f"{namespace}/{account}", _SUFFIX)
    mount = {"name": name, "readOnly": True, "mountPath": MOUNT_PATH}
    mounted = False
    for member in ("initContainers", "containers"):
        if not spec.get(member):
            continue
        containers = []
        for container in spec[member]:
            if any(each.get("mountPath") == MOUNT_PATH for each in container.get("volumeMounts") or ()):
                containers.append(container)
                continue
            containers.append({**container, "volumeMounts": [*(container.get("volumeMounts") or ()), mount]})
            mounted = True
        spec[member] = containers
    if mounted and found is None:
        spec["volumes"] = [*volumes, {"name": name, "projected": _token_sources()}]


def _token_sources() -> Obj:
    return {
        "defaultMode": 420,
        "sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_SECONDS}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {
                "downwardAPI": {
                    "items": [
                        {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
                    ]
                }
            },
        ],
    }


# --- secrets


def _check_secrets(call: Call, pod: Obj, account: Obj, members: tuple[str, ...]) -> None:
    """An account that says so lets its pods use the secrets that it lists, and no others."""
    if (account["metadata"].get("annotations") or {}).get(ENFORCE) not in _TRUE:
        return
    allowed = {reference.get("name") for reference in account.get("secrets") or ()}
    why = f"is not allowed because service account {account['metadata']['name']} does not reference that secret"
    spec = pod["spec"]
    for used, name in _used_secrets(spec, members):
        if name not in allowed:
            raise _refusal(call, pod, f'{used}="{name}" {why}')
    if "containers" not in members:
        return
    pulls = {reference.get("name") for reference in account.get("imagePullSecrets") or ()}
    for index, reference in enumerate(spec.get("imagePullSecrets") or ()):
        if reference.get("name") not in pulls:
            shown = f'imagePullSecrets[{index}].name="{reference.get("name")}"'
            raise _refusal(call, pod, f"{shown} {why.replace('that secret', 'that imagePullSecret')}")


_WORDS = {
    "initContainers": "init container",
    "containers": "container",
    "ephemeralContainers": "ephemeral container",
}


def _used_secrets(spec: Obj, members: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """How a pod uses secrets, and which ones."""
    for volume in (spec.get("volumes") or ()) if "containers" in members else ():
        if volume.get("secret") is not None:
            yield "volume with secret.secretName", str(volume["secret"].get("secretName") or "")
    for member in members:
        for container in spec.get(member) or ():
            who = f"{_WORDS[member]} {container.get('name')}"
            for variable in container.get("env") or ():
                reference = (variable.get("valueFrom") or {}).get("secretKeyRef")
                if reference is not None:
                    how = f"{who} with envVar {variable.get('name')} referencing secret.secretName"
                    yield how, str(reference.get("name") or "")
            for source in container.get("envFrom") or ():
                if source.get("secretRef") is not None:
                    how = f"{who} with envFrom referencing secret.secretName"
                    yield how, str(source["secretRef"].get("name") or "")


def _refusal(call: Call, pod: Obj, why: str) -> StatusError:
    return forbidden_error("", "pods", told_name(pod), why)
