"""Pods and pod templates: the claims that they refer to, which containers use them, and extended resources beside."""

from __future__ import annotations

from collections.abc import Iterator

from haru.kube.decoding import suggest
from haru.kube.meta import Obj
from haru.lint.classes import facts_of
from haru.lint.findings import Draft, Edit, Insert, Rename, Replace
from haru.lint.manifests import RESOURCE, Item, Manifests, PodSpec, claim_spec, pod_spec, requests_of
from haru.lint.paths import get
from haru.lint.published import NVIDIA

_CLAIM, _TEMPLATE = "ResourceClaim", "ResourceClaimTemplate"
_FIELDS = {"resourceClaimName": _CLAIM, "resourceClaimTemplateName": _TEMPLATE}
_OTHER_FIELD = {"resourceClaimName": "resourceClaimTemplateName", "resourceClaimTemplateName": "resourceClaimName"}
_GPU = "nvidia.com/"


def check_pod(item: Item, manifests: Manifests) -> Iterator[Draft]:
    """The pod, or the template, that an object is or has."""
    pod = pod_spec(item)
    if pod is None:
        return
    claims = list(pod.spec.get("resourceClaims") or ())
    for index, claim in enumerate(claims):
        yield from _reference(f"{pod.path}.resourceClaims[{index}]", claim, item, manifests, "pods")
    yield from _use(pod, claims, item, manifests)
    yield from _both(pod, claims, item, manifests)
    yield from _shared(pod, claims)


def check_group_claims(item: Item, manifests: Manifests) -> Iterator[Draft]:
    """The claims that a PodGroup refers to."""
    for index, claim in enumerate((item.obj.get("spec") or {}).get("resourceClaims") or ()):
        yield from _reference(f"spec.resourceClaims[{index}]", claim, item, manifests, "the group's pods")


def _reference(path: str, claim: Obj, item: Item, manifests: Manifests, who: str) -> Iterator[Draft]:
    for field, kind in _FIELDS.items():
        name = claim.get(field)
        if not name or manifests.find(kind, item.namespace, str(name)) is not None:
            continue
        place, other = f"{path}.{field}", _OTHER_FIELD[field]
        wrong = manifests.find(_FIELDS[other], item.namespace, str(name))
        if wrong is not None:
            check = "template-is-claim" if kind == _TEMPLATE else "claim-is-template"
            message = f'"{name}" is a {_FIELDS[other]}, not a {kind}'
            reason = f"no {kind} of that name is found, so {who} stay Pending"
            remedy = f"write {other}: {name}, or make {name} a {kind}"
            edits: tuple[Edit, ...] = () if other in claim else (Rename(place, other),)
            yield Draft(check, place, message, reason, remedy, edits)
            continue
        yield from _absent(place, kind, str(name), item, manifests, who)


def _absent(place: str, kind: str, name: str, item: Item, manifests: Manifests, who: str) -> Iterator[Draft]:
    """A name that the files do not have. Whether that is a mistake only the files themselves can suggest."""
    reason = f"{who} stay Pending until it is there"
    message = f'no {kind} "{name}" is in the files'
    elsewhere = manifests.elsewhere(kind, name)
    names = manifests.names(kind, item.namespace)
    close = suggest(name, names)
    if elsewhere:
        message = f'{kind} "{name}" is in the namespace {elsewhere}, not in {item.namespace}'
        reason = "references stay within the namespace"
        yield Draft("reference-missing", place, message, reason, f"put both into the namespace {item.namespace}")
    elif close:
        edit = (Replace(place, close),)
        yield Draft("reference-missing", place, message, reason, f'did you mean "{close}"?', edit)
    elif names:
        yield Draft("reference-missing", place, message, reason, f"the files have {', '.join(sorted(names))}")
    else:
        yield Draft("reference-elsewhere", place, message, reason, f"give lint the file of the {kind} as well")


def _containers(pod: PodSpec) -> Iterator[tuple[str, Obj]]:
    for field in ("initContainers", "containers"):
        for index, container in enumerate(pod.spec.get(field) or ()):
            yield f"{pod.path}.{field}[{index}]", container


def _use(pod: PodSpec, claims: list[Obj], item: Item, manifests: Manifests) -> Iterator[Draft]:
    used: set[str] = set()
    by_name = {str(claim.get("name")): claim for claim in claims}
    for path, container in _containers(pod):
        for index, entry in enumerate((container.get("resources") or {}).get("claims") or ()):
            name, request = str(entry.get("name")), entry.get("request")
            used.add(name)
            if request and name in by_name:
                yield from _request(
                    f"{path}.resources.claims[{index}].request", request, by_name[name], item, manifests
                )
    containers: list[Obj] = list(pod.spec.get("containers") or ())
    for index, claim in enumerate(claims):
        name = str(claim.get("name"))
        if name in used:
            continue
        edits: tuple[Edit, ...] = ()
        if len(containers) == 1 and len(claims) == 1 and not used:
            # As written: defaults have added an empty `resources` by now.
            place = f"{pod.path}.containers[0]"
            edits = (_claims_entry(place, get(item.raw, place), name),)
        yield Draft(
            "claim-not-used",
            f"{pod.path}.resourceClaims[{index}]",
            f'no container has "{name}" in resources.claims',
            "the pod holds the devices, and no container is given them",
            f"resources: {{claims: [{{name: {name}}}]}} in the container that needs the devices",
            edits,
        )


def _claims_entry(path: str, container: Obj, name: str) -> Edit:
    resources = container.get("resources")
    if not resources:
        if resources is None:
            return Insert(path, "resources", {"claims": [{"name": name}]})
        return Replace(f"{path}.resources", {"claims": [{"name": name}]})
    return Insert(f"{path}.resources", "claims", [{"name": name}])


def _spec_of(claim: Obj, item: Item, manifests: Manifests) -> tuple[str, Obj, str] | None:
    """(path, spec, version) of what a pod's claim refers to."""
    for field, kind in _FIELDS.items():
        name = claim.get(field)
        found = manifests.find(kind, item.namespace, str(name)) if name else None
        if found is not None and found.is_a(RESOURCE, kind) and found.kind is not None:
            spec = claim_spec(found)
            return (spec[0], spec[1], found.kind.version) if spec is not None else None
    return None


def _request(place: str, request: str, claim: Obj, item: Item, manifests: Manifests) -> Iterator[Draft]:
    found = _spec_of(claim, item, manifests)
    if found is None:
        return
    names = {str(one.get("name")) for one in (found[1].get("devices") or {}).get("requests") or ()}
    if request in names:
        return
    base = request.partition("/")[0]
    close = base if base in names else suggest(request, names)
    edits: tuple[Edit, ...] = (Replace(place, close),) if close else ()
    reason = "the container cannot be started: none of the claim's devices is its own"
    advice = f"write {close}" if close else f"the claim has {', '.join(sorted(names))}"
    yield Draft("request-reference", place, f'the claim has no request "{request}"', reason, advice, edits)


def _both(pod: PodSpec, claims: list[Obj], item: Item, manifests: Manifests) -> Iterator[Draft]:
    if not any(_may_be_gpu(claim, item, manifests) for claim in claims):
        return
    for path, container in _containers(pod):
        resources = container.get("resources") or {}
        named = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
        asked = sorted(name for name in named if name.startswith(_GPU))
        if asked:
            yield Draft(
                "both-models",
                f"{path}.resources",
                f"the pod asks for {', '.join(asked)} and holds a claim for GPUs as well",
                "a node serves the extended resource by plugin or by DRA; the pod gets GPUs twice, or fits nowhere",
                f"keep one: leave {asked[0]} out, or the claim",
            )


def _may_be_gpu(claim: Obj, item: Item, manifests: Manifests) -> bool:
    """Whether a claim's devices are NVIDIA's; a claim that nobody knows may be anything."""
    found = _spec_of(claim, item, manifests)
    if found is None:
        return True
    for request in requests_of(*found):
        drivers = {fact[1] for fact in facts_of(manifests, request.device_class) if fact[0] == "driver"}
        if not drivers or NVIDIA in drivers:
            return True
    return False


def _shared(pod: PodSpec, claims: list[Obj]) -> Iterator[Draft]:
    if pod.pods is None or pod.pods < 2:
        return
    for index, claim in enumerate(claims):
        if claim.get("resourceClaimName"):
            yield Draft(
                "claim-shared",
                f"{pod.path}.resourceClaims[{index}].resourceClaimName",
                f"all {pod.pods} pods use the same devices",
                "a claim named directly is one claim, whoever uses it",
                "resourceClaimTemplateName gives each pod devices of its own",
            )
