"""Which objects a node has to do with: what the pods that are bound to it refer to, and what names it.

Followed from the store's history, one cursor for each resource. Nobody pays for it but the nodes' own requests for such
objects: only then the cursors are read on, and a resource is read whole when it is first asked about (or when its
history has been cut since).
Source: the graph of Kubernetes' node authorizer, as behaviour.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from haru.apiserver.encoding.objects import recent
from haru.apiserver.object_store import ObjectStore
from haru.kube.meta import Obj
from haru.storage import Compacted, Record, Watch

MIRROR = "kubernetes.io/config.mirror"
_CHUNK = 500
"""So many objects are read before others have their turn."""
_SECRET_REFS = ("nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef")
_OLD_SECRET_REFS = ("azureFile", "cephfs", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos")


class Reference(NamedTuple):
    """An object: group and plural as one (`secrets`, `resourceclaims.resource.k8s.io`), namespace, name."""

    resource: str
    namespace: str
    name: str


CLAIMS = "resourceclaims.resource.k8s.io"
SLICES = "resourceslices.resource.k8s.io"
ATTACHMENTS = "volumeattachments.storage.k8s.io"


class _Followed:
    """One resource: of each of its objects, which nodes (or other objects) may reach which objects through it."""

    def __init__(
        self, objects: ObjectStore, group: str, plural: str, links: Callable[[Obj], tuple[str, set[Reference]]]
    ) -> None:
        self._objects = objects
        self._group, self._plural = group, plural
        self._links = links
        self._watch: Watch | None = None
        self._known: dict[str, tuple[str, set[Reference]]] = {}
        self._ends: dict[Reference, str | Counter[str]] = {}
        self._lock = asyncio.Lock()

    async def refresh(self) -> None:
        """Take in what has changed."""
        async with self._lock:
            try:
                if self._watch is not None:
                    with suppress(Compacted):
                        await self._take_in({event.key: event.new for event in self._watch.pending()})
                        return
                    self._forget()
                await self._read()
            except BaseException:
                # What was not taken in would never be known: the next who asks reads everything.
                self._forget()
                raise

    async def _read(self) -> None:
        resource = self._objects.served.find(self._group, self._plural)
        if resource is None:
            return
        self._known, self._ends = {}, {}
        page = await self._objects.store.range(resource.prefix(""))
        self._watch = self._objects.store.watch(resource.prefix(""), page.revision)
        await self._take_in({record.key: record for record in page.records})

    async def _take_in(self, records: Mapping[str, Record | None]) -> None:
        """Take in the newest version of each key; None: it is gone."""
        for position, (key, record) in enumerate(records.items(), 1):
            self._set(key, record)
            if not position % _CHUNK:
                await asyncio.sleep(0)

    def _forget(self) -> None:
        """Have the next refresh read everything."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _set(self, key: str, record: Record | None) -> None:
        end, references = self._links(recent(record)) if record is not None else ("", set[Reference]())
        known = self._known.get(key)
        if known == (end, references):
            return
        if known is not None:
            del self._known[key]
            self._count(*known, -1)
        if end and references:
            self._known[key] = (end, references)
            self._count(end, references, 1)

    def _count(self, end: str, references: set[Reference], more: int) -> None:
        for reference in references:
            found = self._ends.get(reference)
            if found is None:
                self._ends[reference] = end  # nearly all objects are reached from one, by one
                continue
            counts = Counter((found,)) if isinstance(found, str) else found
            counts[end] += more
            if not counts[end]:
                del counts[end]
            if counts:
                self._ends[reference] = counts
            else:
                del self._ends[reference]

    def ends(self, reference: Reference) -> Iterable[str]:
        """What an object is reached from: names of nodes, or of claims of volumes."""
        found = self._ends.get(reference, ())
        return (found,) if isinstance(found, str) else found


class NodeGraph:
    """Answers whether an object is any of a node's business. Only what was refreshed is known."""

    def __init__(self, objects: ObjectStore) -> None:
        self._pods = _Followed(objects, "", "pods", pod_links)
        self._volumes = _Followed(objects, "", "persistentvolumes", _volume_links)
        self._attachments = _Followed(objects, "storage.k8s.io", "volumeattachments", _attachment_links)
        self._slices = _Followed(objects, "resource.k8s.io", "resourceslices", _slice_links)

    async def refresh(self, resource: str) -> None:
        """Take in what has changed and matters for a resource."""
        for followed in self._of(resource):
            await followed.refresh()

    def _of(self, resource: str) -> tuple[_Followed, ...]:
        if resource == SLICES:
            return (self._slices,)
        if resource == ATTACHMENTS:
            return (self._attachments,)
        return (self._pods, self._volumes) if resource in ("persistentvolumes", "secrets") else (self._pods,)

    def reaches(self, node: str, reference: Reference) -> bool:
        """Whether the node may know the object."""
        own, *through = self._of(reference.resource)
        if node in own.ends(reference):
            return True
        # A volume, or a secret of its driver, by way of the claim that it is bound to.
        for volumes in through:
            for claim in volumes.ends(reference):
                namespace, _, name = claim.partition("/")
                if node in own.ends(Reference("persistentvolumeclaims", namespace, name)):
                    return True
        return False


# --- what objects refer to


def pod_links(pod: Obj) -> tuple[str, set[Reference]]:
    """The node of a pod, and what that node may reach because of it."""
    spec, metadata = pod.get("spec") or {}, pod["metadata"]
    namespace = metadata.get("namespace", "")
    found = {Reference("pods", namespace, metadata["name"])}
    # What a node makes itself must not open anything to it.
    if MIRROR not in (metadata.get("annotations") or {}):
        found |= {Reference(resource, namespace, name) for resource, name in _referred(pod) if name}
    return spec.get("nodeName") or "", found


def _referred(pod: Obj) -> Iterator[tuple[str, str]]:
    """(resource, name) of everything that a pod refers to in its namespace."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    yield "serviceaccounts", spec.get("serviceAccountName") or ""
    for reference in spec.get("imagePullSecrets") or ():
        yield "secrets", reference.get("name") or ""
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(kind) or ():
            yield from _of_container(container)
    for volume in spec.get("volumes") or ():
        yield from _of_volume(volume, pod["metadata"]["name"])
    made = {entry.get("name"): entry.get("resourceClaimName") for entry in status.get("resourceClaimStatuses") or ()}
    for entry in spec.get("resourceClaims") or ():
        yield CLAIMS, entry.get("resourceClaimName") or made.get(entry.get("name")) or ""
    yield CLAIMS, (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName") or ""


def _of_container(container: Obj) -> Iterator[tuple[str, str]]:
    for source in container.get("envFrom") or ():
        yield "secrets", (source.get("secretRef") or {}).get("name") or ""
        yield "configmaps", (source.get("configMapRef") or {}).get("name") or ""
    for variable in container.get("env") or ():
        source = variable.get("valueFrom") or {}
        yield "secrets", (source.get("secretKeyRef") or {}).get("name") or ""
        yield "configmaps", (source.get("configMapKeyRef") or {}).get("name") or ""


def _of_volume(volume: Obj, pod: str) -> Iterator[tuple[str, str]]:
    yield "secrets", (volume.get("secret") or {}).get("secretName") or ""
    yield "configmaps", (volume.get("configMap") or {}).get("name") or ""
    for source in (volume.get("projected") or {}).get("sources") or ():
        yield "secrets", (source.get("secret") or {}).get("name") or ""
        yield "configmaps", (source.get("configMap") or {}).get("name") or ""
    yield "secrets", ((volume.get("csi") or {}).get("nodePublishSecretRef") or {}).get("name") or ""
    yield "secrets", (volume.get("azureFile") or {}).get("secretName") or ""
    for kind in _OLD_SECRET_REFS:
        yield "secrets", ((volume.get(kind) or {}).get("secretRef") or {}).get("name") or ""
    yield "persistentvolumeclaims", (volume.get("persistentVolumeClaim") or {}).get("claimName") or ""
    if volume.get("ephemeral"):
        yield "persistentvolumeclaims", f"{pod}-{volume.get('name')}"


def _volume_links(volume: Obj) -> tuple[str, set[Reference]]:
    """The claim that a volume is bound to, and what who may use the claim may reach: the volume and its secrets."""
    spec = volume.get("spec") or {}
    claim = spec.get("claimRef") or {}
    found = {Reference("persistentvolumes", "", volume["metadata"]["name"])}
    references = [(spec.get("csi") or {}).get(name) or {} for name in _SECRET_REFS]
    for kind in _OLD_SECRET_REFS:
        source = spec.get(kind) or {}
        references.append(source.get("secretRef") or {})
        references.append({"name": source.get("secretName"), "namespace": source.get("secretNamespace")})
    for reference in references:
        if reference.get("name"):
            found.add(
                Reference("secrets", reference.get("namespace") or claim.get("namespace") or "", reference["name"])
            )
    return f"{claim.get('namespace', '')}/{claim['name']}" if claim.get("name") else "", found


def _attachment_links(attachment: Obj) -> tuple[str, set[Reference]]:
    node = (attachment.get("spec") or {}).get("nodeName") or ""
    return node, {Reference(ATTACHMENTS, "", attachment["metadata"]["name"])}


def _slice_links(part: Obj) -> tuple[str, set[Reference]]:
    node = (part.get("spec") or {}).get("nodeName") or ""
    return node, {Reference(SLICES, "", part["metadata"]["name"])}
