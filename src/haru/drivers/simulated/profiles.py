"""Node profiles: a machine's shape and the devices in it.

`NAME` publishes whole cards; `NAME-mig` adds every partition with counters (dynamic MIG); `NAME-mig-balanced` has the
cards divided beforehand (static MIG, all-balanced); `NAME-shared` lets several claims share a card's memory;
`NAME-plugin` publishes no devices but has the cards as an extended resource, as with NVIDIA's device plugin;
`FILE.yaml` is a profile of one's own in the form of profiles.yaml (or a `NodeProfile` whose spec has that form).
The built-in profiles are read on first use.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from haru.drivers.simulated import amd
from haru.drivers.simulated.geometry import CAPACITIES, Geometry, Partition, Placement
from haru.files import text_of
from haru.kube import yaml
from haru.kube.meta import Obj
from haru.kube.names import is_dns1123_subdomain, is_extended_resource_name
from haru.kube.quantity import parse_quantity

Layout = Literal["cards", "mig", "mig-balanced", "shared", "plugin"]

NVIDIA_DRIVER: Final = "gpu.nvidia.com"
COMPUTE_DOMAIN_DRIVER: Final = "compute-domain.nvidia.com"
_DATA: Final = Path(__file__).with_name("profiles.yaml")
PLUGIN_RESOURCE: Final = "nvidia.com/gpu"
_LAYOUTS: Final[tuple[Layout, ...]] = ("mig-balanced", "mig", "shared", "plugin")
_MIG: Final[tuple[Layout, ...]] = ("mig", "mig-balanced")
_ROW: Final = ("multiprocessors", "copyEngines", "decoders", "jpegEngines", "ofaEngines", "memory")
_MAX_CARDS: Final = 64


class ProfileError(ValueError):
    """An unknown or invalid profile; the message names valid ones."""


@dataclass(frozen=True, slots=True, eq=False)
class CardModel:
    """A model of GPU; there is one object for each."""

    product: str
    brand: str
    architecture: str
    compute_capability: str
    memory_mib: int
    geometry: Geometry | None
    addressing_mode: str = ""
    """How the card shares addresses with its CPU, if the driver says so."""


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU in a node."""

    model: CardModel
    minor: int
    numa_node: int | None
    pcie_root: str
    pci_bus_id: str


@dataclass(frozen=True, slots=True)
class Profile:
    """A kind of node."""

    name: str
    cpu: str
    memory: str
    pods: int
    instance_type: str
    labels: Mapping[str, str]
    layout: Layout = "cards"
    cards: tuple[Card, ...] = ()
    driver: str = ""
    """The driver that publishes the devices; empty for a node without any."""
    devices: tuple[Obj, ...] = ()
    """Devices that are not cards, as a ResourceSlice lists them."""
    counters: tuple[Obj, ...] = ()
    """Counter sets that these devices consume, as a ResourceSlice lists them."""
    arch: str = "amd64"
    nodes_per_rack: int = 4
    nvlink_domain: bool = False
    """Whether the cards of the nodes of a rack are one NVLink domain."""
    extended: Mapping[str, str] = field(default_factory=dict)
    """Extended resources that the node has by device plugins, with their amounts."""
    source: str = ""
    """What describes a profile that is not built in, as JSON: nodes carry it along."""

    @property
    def drivers(self) -> tuple[str, ...]:
        """The drivers that publish anything on a node."""
        return (self.driver, COMPUTE_DOMAIN_DRIVER) if self.nvlink_domain and self.driver else (self.driver,)

    @property
    def has_mig(self) -> bool:
        """Whether the cards can be divided."""
        return any(card.model.geometry is not None for card in self.cards)


@cache
def _data() -> Obj:
    return yaml.load(_DATA.read_text(encoding="utf-8"))


def profile_names() -> tuple[str, ...]:
    """Every built-in name, layouts included."""
    names = []
    for name, entry in _data()["profiles"].items():
        names.append(name)
        if "cards" in entry:
            divisible = "family" in _data()["models"][entry["cards"]["model"]]
            names += [f"{name}-{layout}" for layout in _LAYOUTS if layout not in _MIG or divisible]
    return tuple(sorted(names))


@cache
def load_profile(name: str) -> Profile:
    """The profile of a built-in name, or of a file whose name ends in .yaml or .yml; ProfileError otherwise."""
    if name.endswith((".yaml", ".yml")):
        return _from_file(Path(name))
    entry = _data()["profiles"].get(name)
    if entry is not None:
        return _profile(name, entry, name)
    for layout in _LAYOUTS:
        base = name.removesuffix(f"-{layout}")
        if base != name and base in _data()["profiles"]:
            return _with_layout(_profile(base, _data()["profiles"][base], base), name, layout)
    known = ", ".join(_data()["profiles"])
    raise ProfileError(f'no profile is named "{name}": use one of {known} (cards also with -mig, -mig-balanced, '
                       "-shared, -plugin), or a FILE.yaml")  # fmt: skip


def _with_layout(profile: Profile, name: str, layout: Layout) -> Profile:
    if not profile.cards:
        raise ProfileError(f'profile "{name}": {profile.name} has no GPUs, so it has no {layout} layout')
    if layout in _MIG and not profile.has_mig:
        raise ProfileError(f'profile "{name}": {profile.cards[0].model.product} cannot be divided (MIG)')
    if layout == "plugin":
        extended = {**profile.extended, PLUGIN_RESOURCE: str(len(profile.cards))}
        return replace(profile, name=name, layout=layout, cards=(), driver="", extended=extended)
    return replace(profile, name=name, layout=layout)


def _discovered(cards: Sequence[Card]) -> dict[str, str]:
    """What GPU feature discovery and NVIDIA's operator label a node with, beside a device plugin or a DRA driver."""
    if not cards:
        return {}
    model = cards[0].model
    major, _, rest = model.compute_capability.partition(".")
    found = {
        "compute.major": major,
        "compute.minor": rest.partition(".")[0] or "0",
        "count": str(len(cards)),
        "family": model.architecture.lower(),
        "memory": str(model.memory_mib),
        "present": "true",
        "product": model.product,
    }
    labels = {f"nvidia.com/gpu.{name}": _label_value(text) for name, text in found.items()}
    return {**labels, "nvidia.com/mig.capable": str(model.geometry is not None).lower()}


def _label_value(text: str) -> str:
    """The text without what a label cannot have, its words joined by hyphens."""
    return "-".join(re.sub("[^A-Za-z0-9-_. ]", "", text).split())[:63].strip("-_.")


def _from_file(path: Path) -> Profile:
    try:
        text = text_of(path.read_bytes())
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ProfileError(f"{path}: {error}") from None
    return described_profile(text, str(path), path.stem)


@lru_cache(maxsize=256)
def described_profile(text: str, where: str, name: str = "") -> Profile:
    """The profile that a YAML or JSON text describes; `name` is used if the text gives none."""
    try:
        document = yaml.load(text)
    except ValueError as error:
        raise ProfileError(f"{where}: {error}") from None
    if document.get("kind") == "NodeProfile":
        name = (document.get("metadata") or {}).get("name") or name
        document = document.get("spec") or {}
    complaints = is_dns1123_subdomain(name)
    if complaints:
        raise ProfileError(f'{where}: "{name}" cannot begin the names of nodes: {complaints[0]}')
    source = json.dumps({"kind": "NodeProfile", "metadata": {"name": name}, "spec": document}, separators=(",", ":"))
    return replace(_profile(name, document, where), source=source)


def _profile(name: str, entry: Mapping[str, Any], where: str) -> Profile:
    node = _mapping(entry.get("node"), f"{where}: node")
    layout = entry.get("layout", "cards")
    if layout not in ("cards", *_LAYOUTS):
        raise ProfileError(f'{where}: layout: "{layout}" is none of cards, mig, mig-balanced, shared, plugin')
    cards = _cards(_mapping(entry["cards"], f"{where}: cards"), f"{where}: cards") if entry.get("cards") else ()
    devices, counters = entry.get("devices") or [], list[Obj]()
    driver = entry.get("driver", NVIDIA_DRIVER if cards else "")
    if entry.get("amd"):
        devices, counters = _amd(_mapping(entry["amd"], f"{where}: amd"), f"{where}: amd")
        driver = amd.DRIVER
    if not isinstance(devices, list) or not all(isinstance(d, dict) and d.get("name") for d in devices):
        raise ProfileError(
            f"{where}: devices: must be a list of devices as a ResourceSlice holds them, each with a name"
        )
    if devices and not driver:
        raise ProfileError(f"{where}: driver: must name the driver that publishes the devices")
    if devices and cards:
        raise ProfileError(f"{where}: give either cards or devices")
    profile = Profile(
        name=name,
        cpu=_quantity(node, "cpu", f"{where}: node.cpu"),
        memory=_quantity(node, "memory", f"{where}: node.memory"),
        pods=int(node.get("pods", 110)),
        instance_type=str(node.get("instanceType", name)),
        labels={**_discovered(cards), **_mapping(node.get("labels") or {}, f"{where}: node.labels")},
        cards=cards,
        driver=driver,
        devices=tuple(devices),
        counters=tuple(counters),
        arch=str(node.get("arch", "amd64")),
        nodes_per_rack=_rack_size(node, where),
        nvlink_domain=bool(entry.get("nvlinkDomain")),
        extended=_extended(_mapping(node.get("extendedResources") or {}, f"{where}: node.extendedResources"), where),
    )
    return profile if layout == "cards" else _with_layout(profile, name, layout)


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ProfileError(f"{where}: must be an object")
    return value


def _extended(amounts: Mapping[str, Any], where: str) -> Mapping[str, str]:
    for name, amount in amounts.items():
        if not is_extended_resource_name(name):
            raise ProfileError(f'{where}: node.extendedResources: "{name}" must be of the form example.com/name')
        if isinstance(amount, bool) or not isinstance(amount, int) or amount < 0:
            raise ProfileError(f"{where}: node.extendedResources.{name}: must be a whole number, not {amount!r}")
    return {name: str(amount) for name, amount in amounts.items()}


def _quantity(node: Mapping[str, Any], key: str, where: str) -> str:
    try:
        return str(parse_quantity(node.get(key, "")))
    except ValueError as error:
        raise ProfileError(f"{where}: {error}") from None


def _rack_size(node: Mapping[str, Any], where: str) -> int:
    size = node.get("nodesPerRack", 4)
    if not isinstance(size, int) or size < 1:
        raise ProfileError(f"{where}: node.nodesPerRack: must be a number from 1")
    return size


class _Slot(NamedTuple):
    """Where a card is."""

    number: int
    numa_node: int | None
    pcie_root: str
    pci_bus_id: str


def _slots(entry: Mapping[str, Any], where: str) -> Iterator[_Slot]:
    count = entry.get("count", 1)
    if not isinstance(count, int) or not 1 <= count <= _MAX_CARDS:
        raise ProfileError(f"{where}.count: must be between 1 and {_MAX_CARDS}")
    roots: Sequence[str] = entry.get("pcieRoots") or []
    numa: Sequence[int] = entry.get("numaNodes") or []
    for number in range(count):
        root = roots[number] if number < len(roots) else f"pci0000:{number:02x}"
        parts = re.fullmatch("pci([0-9a-f]{4}):([0-9a-f]{2})", root)
        if parts is None:
            raise ProfileError(f'{where}.pcieRoots[{number}]: "{root}" is not of the form pci0000:17')
        bus = f"{parts[1]}:{min(int(parts[2], 16) + 2, 255):02x}:00.0"
        yield _Slot(number, numa[number] if number < len(numa) else None, root, bus)


def _cards(entry: Mapping[str, Any], where: str) -> tuple[Card, ...]:
    model = _model(entry.get("model"), where)
    return tuple(Card(model, *slot) for slot in _slots(entry, where))


def _amd(entry: Mapping[str, Any], where: str) -> tuple[list[Obj], list[Obj]]:
    """AMD's cards: a model by name or one that the file describes, in one of their modes."""
    given, known = entry.get("model"), _data()["amdModels"]
    model = known.get(given) if isinstance(given, str) else _mapping(given, f"{where}.model")
    if model is None:
        raise ProfileError(f'{where}.model: "{given}" is none of {", ".join(known)}')
    missing = [field for field in _data()["amdModels"]["mi300x"] if field not in model]
    if missing:
        raise ProfileError(f"{where}.model: {missing[0]} is missing")
    mode = entry.get("mode", "spx-nps1")
    if mode not in amd.modes():
        raise ProfileError(f'{where}.mode: "{mode}" is none of {", ".join(amd.modes())}')
    slots = _slots(entry, where)
    cards = [amd.AmdCard(s.number, model, s.numa_node or 0, s.pcie_root, s.pci_bus_id) for s in slots]
    return amd.amd_devices(cards, mode)


def _model(entry: Any, where: str) -> CardModel:
    """A built-in model by its name, or one that the file describes."""
    if isinstance(entry, str):
        described = _data()["models"].get(entry)
        if described is None:
            raise ProfileError(f'{where}.model: "{entry}" is none of {", ".join(_data()["models"])}')
        return _model(described, where)
    described = _mapping(entry, f"{where}.model")
    try:
        return CardModel(
            product=described["productName"],
            brand=described.get("brand", "Nvidia"),
            architecture=described["architecture"],
            compute_capability=str(described["computeCapability"]),
            memory_mib=int(described["memoryMiB"]),
            geometry=_geometry(described) if "family" in described else None,
            addressing_mode=described.get("addressingMode", ""),
        )
    except KeyError as error:
        raise ProfileError(f"{where}.model: {error.args[0]} is missing or unknown") from None


def _geometry(described: Mapping[str, Any]) -> Geometry:
    family = _data()["families"][described["family"]]
    partitions: dict[str, Partition] = {}
    for placement_class, (profile, *amounts) in described["partitions"].items():
        instance_profile, size, starts = family["placements"][placement_class]
        given = {"encoders": 0, **dict(zip(_ROW, amounts, strict=True))}
        ordered = {name: given[name] for name in CAPACITIES}
        partitions[placement_class] = Partition(profile, instance_profile, size, tuple(starts), ordered)
    balanced = tuple(Placement(partitions[name], start) for name, start in family["balanced"])
    counts_media = bool(described.get("mediaExtensionCounter"))
    return Geometry(family["memorySlices"], tuple(partitions.values()), balanced, counts_media)
