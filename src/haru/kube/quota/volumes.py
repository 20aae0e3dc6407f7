"""PersistentVolumeClaims: their number and the storage that they request, in all and of each storage class."""

from __future__ import annotations

from collections.abc import Iterable

from haru.kube.meta import Obj
from haru.kube.quantity import Quantity, parse_quantity
from haru.kube.quota.scopes import volume_attributes_classes, volume_claim_in_scope
from haru.kube.quota.usage import ONE, Evaluator, Surroundings, Usage

_CLAIMS = "persistentvolumeclaims"
_STORAGE = "requests.storage"
_PER_CLASS = ".storageclass.storage.k8s.io/"
_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"


class VolumeClaims(Evaluator):
    """The evaluator of PersistentVolumeClaims."""

    updates = True

    def __init__(self) -> None:
        super().__init__("", _CLAIMS)

    def names(self, hard: Iterable[str], around: Surroundings) -> list[str]:
        """See Evaluator."""
        ends = tuple(_PER_CLASS + name for name in (_CLAIMS, _STORAGE))
        return [name for name in hard if name in (self.count, _CLAIMS, _STORAGE) or name.endswith(ends)]

    def usage(self, obj: Obj, around: Surroundings) -> Usage:
        """See Evaluator."""
        found: Usage = {self.count: ONE, _CLAIMS: ONE}
        storage = requested_storage(obj)
        if storage is not None:
            found[_STORAGE] = storage
        name = (obj["metadata"].get("annotations") or {}).get(_BETA_CLASS) or (obj.get("spec") or {}).get(
            "storageClassName"
        )
        if name:
            found[f"{name}{_PER_CLASS}{_CLAIMS}"] = ONE
            if storage is not None:
                found[f"{name}{_PER_CLASS}{_STORAGE}"] = storage
        return found

    def in_scope(self, selector: Obj, obj: Obj) -> bool:
        """See Evaluator."""
        return volume_claim_in_scope(selector, obj)

    def handles(self, operation: str, subresource: str, new: Obj, old: Obj | None) -> bool:
        """A status counts where it says that more storage was given, or another attributes class."""
        if subresource == "status":
            return old is not None and changes_quota(new, old)
        return not subresource


def changes_quota(new: Obj, old: Obj) -> bool:
    """Whether a change of a claim changes what it counts as, or for which quotas."""
    given = [((c.get("status") or {}).get("allocatedResources") or {}).get("storage") for c in (new, old)]
    return given[0] != given[1] or volume_attributes_classes(new) != volume_attributes_classes(old)


def requested_storage(claim: Obj) -> Quantity | None:
    """Return a claim's requested storage, or its allocated one if that is more, in bytes."""
    requests = ((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}
    if "storage" not in requests:
        return None
    found = _whole(parse_quantity(requests["storage"]))
    given = ((claim.get("status") or {}).get("allocatedResources") or {}).get("storage")
    return max(found, _whole(parse_quantity(given))) if given is not None else found


def _whole(amount: Quantity) -> Quantity:
    return amount if amount.is_integer() else Quantity(amount.value() * 10**9, amount.format)
