"""ResourceClaims and their templates: classes, selectors, counts, constraints, configuration, tolerations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from haru.kube.meta import Obj
from haru.kube.names import is_c_identifier
from haru.lint.classes import facts_of
from haru.lint.configuration import check_config, wanted_partition
from haru.lint.expressions import Facts, analyse
from haru.lint.findings import Draft, Edit, Insert, Remove, Replace
from haru.lint.inventory import Inventory
from haru.lint.manifests import Item, Manifests, Request, claim_spec, requests_of, selectors_of
from haru.lint.published import DRIVERS, NVIDIA, STANDARD, STANDARD_DOMAIN
from haru.lint.selection import Selector

MAX_RESULTS = 32
_PER_SOCKET = 4
_PER_ROOT = 2
_ADMIN_LABEL = "resource.kubernetes.io/admin-access"


def check_claim(item: Item, manifests: Manifests, inventory: Inventory) -> Iterator[Draft]:
    """All of a claim or a template of claims."""
    found = claim_spec(item)
    if found is None or item.kind is None:
        return
    path, spec = found
    requests = requests_of(path, spec, item.kind.version)
    facts = {request.name: facts_of(manifests, request.device_class) for request in requests}
    for request in requests:
        yield from _class(request, manifests)
        yield from _selectors(request, facts[request.name], inventory)
        facts[request.name] |= _asked(request)
        yield from _tolerations(request)
        yield from _admin(item, request, manifests)
    yield from _counts(path, requests)
    devices = spec.get("devices") or {}
    for index, constraint in enumerate(devices.get("constraints") or ()):
        of = _covered(requests, constraint.get("requests") or ())
        yield from _constraint(f"{path}.devices.constraints[{index}]", constraint, of, facts, inventory)
    configs = devices.get("config") or ()
    for index, config in enumerate(configs):
        of = _covered(requests, config.get("requests") or ())
        drivers = {fact[1] for request in of for fact in facts[request.name] if fact[0] == "driver"}
        known = all(any(fact[0] == "driver" for fact in facts[request.name]) for request in of)
        types = {fact[3] for request in of for fact in facts[request.name] if fact[:3] == ("is", NVIDIA, "type")}
        edits = _partition_edits(path, index, len(configs), config, of)
        place = f"{path}.devices.config[{index}]"
        yield from check_config(place, config, drivers if known else (), types if known else (), edits)


def _covered(requests: Sequence[Request], names: Sequence[str]) -> list[Request]:
    """The requests that a constraint or configuration is for: those it names, or all."""
    if not names:
        return list(requests)
    return [request for request in requests if request.name in names or request.name.partition("/")[0] in names]


def _class(request: Request, manifests: Manifests) -> Iterator[Draft]:
    name = request.device_class
    if not name or manifests.knows_class(name):
        return
    close = manifests.close_class(name)
    path = f"{request.path}.deviceClassName"
    message = f'no DeviceClass "{name}" is in the files, nor does a known driver bring one along'
    reason = "pods wait until there is such a class"
    if close:
        edit = (Replace(path, close),)
        yield Draft("class-unknown", path, message, reason, f'did you mean "{close}"?', edit)
    elif any(manifests.all("DeviceClass")):
        listed = ", ".join(sorted(manifests.names("DeviceClass", "")))
        yield Draft("class-unknown", path, message, reason, f"the files have {listed}")
    else:
        yield Draft("reference-elsewhere", path, message, reason, "give lint the file of the class as well")


def _selectors(request: Request, facts: Facts, inventory: Inventory) -> Iterator[Draft]:
    for path, expression in selectors_of(request.path, request.body):
        selector = Selector(path, expression, facts, f"{request.path}.deviceClassName", inventory)
        yield from selector.check()
        facts |= selector.analysis.facts


def _asked(request: Request) -> Facts:
    facts: Facts = frozenset()
    for _, expression in selectors_of(request.path, request.body):
        found = analyse(expression)
        facts |= found.facts if found is not None else frozenset()
    return facts


def _count(request: Request) -> int:
    return 1 if request.body.get("allocationMode") == "All" else int(request.body.get("count") or 1)


def _counts(path: str, requests: Sequence[Request]) -> Iterator[Draft]:
    least: dict[str, tuple[int, Request]] = {}
    for request in requests:
        base = request.name.partition("/")[0]
        if base not in least or _count(request) < least[base][0]:
            least[base] = (_count(request), request)
    total = sum(count for count, _ in least.values())
    reason = f"a claim is given at most {MAX_RESULTS} devices; more is an error on every attempt"
    for count, request in least.values():
        if count > MAX_RESULTS:
            yield Draft(
                "request-count", f"{request.path}.count", f"count is {count}", reason, "spread over several claims"
            )
            return
    if total > MAX_RESULTS:
        message = f"the requests need {total} devices together"
        yield Draft("request-count", f"{path}.devices.requests", message, reason, "spread over several claims")


def _tolerations(request: Request) -> Iterator[Draft]:
    for index, toleration in enumerate(request.body.get("tolerations") or ()):
        path = f"{request.path}.tolerations[{index}]"
        effect = toleration.get("effect") or ""
        if "tolerationSeconds" in toleration and effect not in ("", "NoExecute"):
            reason = "only NoExecute evicts, so only there is something to wait for"
            edit = (Remove(f"{path}.tolerationSeconds"),)
            message = f"tolerationSeconds with the effect {effect}"
            yield Draft(
                "toleration-seconds",
                f"{path}.tolerationSeconds",
                message,
                reason,
                "leave it out, or effect: NoExecute",
                edit,
            )
        if not toleration.get("key") and toleration.get("operator") == "Exists" and not request.body.get("adminAccess"):
            message = "an empty key with Exists tolerates every taint"
            yield Draft(
                "toleration-all", path, message, "devices that are broken or being drained are taken too", "name a key"
            )


def _admin(item: Item, request: Request, manifests: Manifests) -> Iterator[Draft]:
    if request.body.get("adminAccess") is not True:
        return
    namespace = manifests.find("Namespace", "", item.namespace)
    labels = ((namespace.obj.get("metadata") or {}).get("labels") or {}) if namespace is not None else {}
    if labels.get(_ADMIN_LABEL) == "true":
        return
    message = f"adminAccess in the namespace {item.namespace}"
    reason = f'the API refuses it unless the namespace has the label {_ADMIN_LABEL}: "true"'
    severity = "warning" if namespace is not None else "notice"
    advice = f'label the namespace: {_ADMIN_LABEL}: "true"'
    yield Draft("admin-namespace", f"{request.path}.adminAccess", message, reason, advice, (), severity)  # type: ignore[arg-type]


# --- constraints


def _constraint(
    path: str, constraint: Obj, of: Sequence[Request], facts: dict[str, Facts], inventory: Inventory
) -> Iterator[Draft]:
    member = "matchAttribute" if constraint.get("matchAttribute") else "distinctAttribute"
    domain, slash, name = str(constraint.get(member) or "").partition("/")
    if not slash or not of or is_c_identifier(name):
        return
    place = f"{path}.{member}"
    known = inventory.names("attributes", domain)
    if name not in known:
        yield from _unpublished(place, member, domain, name, inventory)
        return
    types = {fact[3] for request in of for fact in facts[request.name] if fact[:3] == ("is", domain, "type")}
    driver = DRIVERS.get(domain)
    only = driver.only.get(name) if driver is not None else None
    if only is not None and types and not types & only:
        message = f"{domain}/{name} is published for devices of type {' and '.join(sorted(only))} only"
        reason = "a device without the attribute never satisfies the constraint"
        yield Draft("constraint-attribute", place, message, reason, f"devices of type {' or '.join(sorted(only))}")
    elif member == "matchAttribute":
        yield from _too_many(place, domain, name, [(each, facts[each.name]) for each in of], inventory)


def _unpublished(place: str, member: str, domain: str, name: str, inventory: Inventory) -> Iterator[Draft]:
    if name in inventory.names("capacity", domain):
        message, reason = f"{domain}/{name} is a capacity", "constraints compare attributes"
        yield Draft("constraint-attribute", place, message, reason, "an attribute, such as productName")
        return
    standard = name if name in STANDARD else inventory.meant("attributes", STANDARD_DOMAIN, name)
    meant = f"{STANDARD_DOMAIN}/{standard}" if standard else ""
    if not meant:
        close = inventory.meant("attributes", domain, name)
        meant = f"{domain}/{close}" if close else ""
    if not inventory.is_closed(domain) and not (meant and domain in DRIVERS):
        return
    message = f"{domain}/{name} is not published"
    reason = "a device without the attribute never satisfies the constraint, so the claim is never allocated"
    edits: tuple[Edit, ...] = (Replace(place, meant),) if meant else ()
    yield Draft("constraint-attribute", place, message, reason, f"{member}: {meant}" if meant else "", edits)


def _too_many(
    place: str, domain: str, name: str, of: Sequence[tuple[Request, Facts]], inventory: Inventory
) -> Iterator[Draft]:
    least: dict[str, int] = {}
    for request, _ in of:
        base = request.name.partition("/")[0]
        least[base] = min(least.get(base, MAX_RESULTS), _count(request))
    count = sum(least.values())
    gpus = all({("driver", NVIDIA), ("is", NVIDIA, "type", "gpu")} <= facts for _, facts in of)
    drivers = {fact[1] for _, facts in of for fact in facts if fact[0] == "driver"}
    one_driver = len(drivers) == 1 and all(any(f[0] == "driver" for f in facts) for _, facts in of)
    most = inventory.most_equal(next(iter(drivers)), domain, name) if one_driver else None
    where = "in the slices at hand"
    if most is None and (gpus or domain == NVIDIA):
        usual = {"numaNode": _PER_SOCKET, "pcieRoot": _PER_ROOT, "pciBusID": 1, "uuid": 1}
        most = usual.get(name) if gpus or name == "uuid" else None
        where = "on a server with eight GPUs on two sockets" if name == "numaNode" else "on usual servers"
    if most is None or count <= most:
        return
    message = f"{count} devices with the same {name}: at most {most} have {where}"
    reason = "the claim is never allocated"
    advice = (
        f"requests of at most {most} devices with a constraint each, or no constraint: a claim stays on one node anyway"
    )
    yield Draft("constraint-impossible", place, message, reason, advice)


# --- a partition by configuration


def _partition_edits(path: str, index: int, configs: int, config: Obj, of: Sequence[Request]) -> tuple[Edit, ...]:
    """Choose the partition by class and selector, and drop the configuration: for one request of whole GPUs."""
    opaque = config.get("opaque") or {}
    parameters = opaque.get("parameters")
    profile = wanted_partition(parameters) if isinstance(parameters, dict) and opaque.get("driver") == NVIDIA else None
    if (
        profile is None
        or not profile[1]
        or len(of) != 1
        or of[0].device_class not in ("gpu.nvidia.com", "mig.nvidia.com")
    ):
        return ()
    request = of[0]
    cel = {"cel": {"expression": f'device.attributes["gpu.nvidia.com"].profile == "{profile[1]}"'}}
    gone = f"{path}.devices.config" + (f"[{index}]" if configs > 1 else "")
    edits: list[Edit] = [Remove(gone), Replace(f"{request.path}.deviceClassName", "mig.nvidia.com")]
    if request.body.get("selectors"):
        edits.append(Insert(f"{request.path}.selectors", "", cel))
    else:
        edits.append(Insert(request.path, "selectors", [cel]))
    return tuple(edits)
