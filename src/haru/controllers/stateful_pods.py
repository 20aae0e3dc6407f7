"""The pods of a StatefulSet and their volumes, by number (pure).

Source: apps/v1 StatefulSet: stable names, the labels `statefulset.kubernetes.io/pod-name` and
`apps.kubernetes.io/pod-index`, claims named TEMPLATE-SET-NUMBER.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

from haru.controllers.objects import PODS, STATEFUL_SETS
from haru.controllers.revisions import POD_LABEL
from haru.kube.meta import Obj, name_of, namespace_of, owner_reference, uid_of
from haru.kube.pod_templates import pod_from_template

POD_NAME = "statefulset.kubernetes.io/pod-name"
POD_INDEX = "apps.kubernetes.io/pod-index"


def replica_names(stateful_set: Obj) -> list[str]:
    """The names of the pods that there should be, in order."""
    spec = stateful_set["spec"]
    start, count = first_ordinal(stateful_set), spec.get("replicas", 1)
    return [f"{name_of(stateful_set)}-{start + number}" for number in range(count)]


def first_ordinal(stateful_set: Obj) -> int:
    """The number of the first pod."""
    return int((stateful_set["spec"].get("ordinals") or {}).get("start") or 0)


def ordinal_of(stateful_set: Obj, pod: Obj) -> int:
    """The number of a pod; -1 for one that has no name of the set."""
    prefix, _, number = name_of(pod).rpartition("-")
    return int(number) if prefix == name_of(stateful_set) and number.isdigit() else -1


def retained(stateful_set: Obj, when: str) -> bool:
    """Whether volume claims stay on that occasion (`whenDeleted`, `whenScaled`)."""
    policy = stateful_set["spec"].get("persistentVolumeClaimRetentionPolicy") or {}
    return bool(policy.get(when, "Retain") == "Retain")


def claim_owners(stateful_set: Obj, pod: Obj, claim: Obj, *, surplus: bool) -> list[Obj] | None:
    """The owner references that a claim of a pod is to have by the retention policy (KEP-1847); None: it has them.

    A claim that an earlier set or pod of that name owns, or that somebody else controls, is left alone.
    """
    references = claim["metadata"].get("ownerReferences") or []
    uids = {("StatefulSet", name_of(stateful_set)): uid_of(stateful_set), ("Pod", name_of(pod)): uid_of(pod)}
    own = [one for one in references if (one["kind"], one["name"]) in uids]
    if any(one["uid"] != uids[one["kind"], one["name"]] for one in own):
        return None
    wanted = [one for one in references if one not in own]
    goes_scaled, goes_deleted = not retained(stateful_set, "whenScaled"), not retained(stateful_set, "whenDeleted")
    if not any(one.get("controller") for one in wanted):
        if goes_scaled and surplus:
            wanted.append(owner_reference(pod, PODS))
        elif goes_deleted:
            wanted.append(owner_reference(stateful_set, STATEFUL_SETS))
    return None if wanted == references else wanted


def claims_of(stateful_set: Obj, ordinal: int) -> Iterator[Obj]:
    """The volume claims of one pod, as they are to be created."""
    labels = (stateful_set["spec"].get("selector") or {}).get("matchLabels") or {}
    for template in stateful_set["spec"].get("volumeClaimTemplates") or ():
        made = copy.deepcopy(template)
        metadata = made.setdefault("metadata", {})
        metadata["name"] = f"{template['metadata']['name']}-{name_of(stateful_set)}-{ordinal}"
        metadata["namespace"] = namespace_of(stateful_set)
        metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
        made.pop("status", None)
        yield {**made, "apiVersion": "v1", "kind": "PersistentVolumeClaim"}


def stateful_pod(stateful_set: Obj, ordinal: int, revision: Obj) -> Obj:
    """The pod of a number, made from the template of a revision."""
    template = {key: value for key, value in revision["data"]["spec"]["template"].items() if key != "$patch"}
    pod = pod_from_template(stateful_set, STATEFUL_SETS, template)
    name = f"{name_of(stateful_set)}-{ordinal}"
    metadata = pod["metadata"]
    metadata["name"] = name
    own = {POD_NAME: name, POD_INDEX: str(ordinal), POD_LABEL: name_of(revision)}
    metadata["labels"] = {**(metadata.get("labels") or {}), **own}
    spec = pod["spec"]
    spec["hostname"] = name
    if stateful_set["spec"].get("serviceName"):
        spec["subdomain"] = stateful_set["spec"]["serviceName"]
    claimed = {body["metadata"]["name"]: body for body in stateful_set["spec"].get("volumeClaimTemplates") or ()}
    volumes = [volume for volume in spec.get("volumes") or () if volume["name"] not in claimed]
    for template_name in claimed:
        source = {"claimName": f"{template_name}-{name}"}
        volumes.append({"name": template_name, "persistentVolumeClaim": source})
    if volumes:
        spec["volumes"] = volumes
    return pod
