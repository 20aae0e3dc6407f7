"""root-ca-certificate-publisher-controller: every namespace has the cluster's authority in `kube-root-ca.crt`.

Pods find it beside their token, and a kubelet starts none whose volume names a config map that is not there. It runs
where somebody says which authority that is.
Source: Kubernetes `root-ca-certificate-publisher-controller`.
"""

from __future__ import annotations

from typing import ClassVar

from haru.controllers.base import Context, Controller
from haru.controllers.objects import NAMESPACES
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind, known_kind
from haru.kube.meta import Obj, annotations_of, is_being_deleted, name_of, namespace_of

OPTION = "root-ca"
"""The context's option with the authority, as PEM."""
CONFIG_MAPS = known_kind("v1", "ConfigMap")
_NAME = "kube-root-ca.crt"
_KEY = "ca.crt"
_DESCRIPTION = "kubernetes.io/description"
_WARNING = "The certificates by which pods know the API server; put back whenever it is changed."


class RootCaController(Controller):
    """Publishes the authority; keys are namespaces."""

    name: ClassVar[str] = "root-ca-certificate-publisher-controller"
    needs: ClassVar[tuple[Kind, ...]] = (NAMESPACES, CONFIG_MAPS)
    workers: ClassVar[int] = 2

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._data = {_KEY: str(context.options[OPTION])}
        self.namespaces = self.informer(NAMESPACES)
        self.maps = context.informers.get(CONFIG_MAPS, field_selector=f"metadata.name={_NAME}")
        self._used.append(self.maps)
        self.namespaces.add_handler(self._changed, lambda _, new: self._changed(new))
        self.maps.add_handler(on_update=lambda _, new: self._touched(new), on_delete=self._touched)

    @classmethod
    def enabled(cls, context: Context) -> bool:
        """Only where the authority is known."""
        return bool(context.options.get(OPTION)) and super().enabled(context)

    def _changed(self, namespace: Obj) -> None:
        if not is_being_deleted(namespace):
            self.queue.add(name_of(namespace))

    def _touched(self, config_map: Obj) -> None:
        self.queue.add(namespace_of(config_map))

    async def sync(self, key: str) -> float | None:
        """Make or mend the config map of one namespace."""
        namespace = self.namespaces.get(key)
        if namespace is None or is_being_deleted(namespace):
            return None
        found = self.maps.get(_NAME, key)
        if found is None:
            await self._make(key)
            return None
        annotations = annotations_of(found)
        if found.get("data") != self._data or not annotations.get(_DESCRIPTION):
            metadata = {**found["metadata"], "annotations": {**annotations, _DESCRIPTION: _WARNING}}
            await self.update(self.maps, {**found, "metadata": metadata, "data": self._data})
        return None

    async def _make(self, namespace: str) -> None:
        metadata = {"name": _NAME, "namespace": namespace, "annotations": {_DESCRIPTION: _WARNING}}
        kind = {"apiVersion": CONFIG_MAPS.api_version, "kind": CONFIG_MAPS.kind}
        try:
            await self.create(self.maps, {**kind, "metadata": metadata, "data": self._data})
        except StatusError as error:
            # One that another made first is looked at again; a namespace that goes needs none.
            if error.code != 404 and not error.has_cause("NamespaceTerminating"):
                raise
