"""Device selectors: CEL as DRA's `selectors[].cel.expression` has it (KEP-4381, Kubernetes 1.36).

An expression sees one variable, `device`, with `driver`, `attributes`, `capacity` and, where the feature is on,
`allowMultipleAllocations`. Attributes and capacities are maps by domain of maps by id; a name without a domain
belongs to the driver's. An unknown domain is an empty map, an unknown id an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from haru.cel.ast import Node
from haru.cel.environment import KUBERNETES, Environment, Library
from haru.cel.errors import CompileError, EvaluationError
from haru.cel.estimate import estimate
from haru.cel.function_estimates import ESTIMATES, OVERLOAD_ESTIMATES
from haru.cel.libraries.kubernetes import BASE, BINDINGS
from haru.cel.libraries.quantity import QUANTITY
from haru.cel.libraries.semver import Semver, parse_semver
from haru.cel.overloads import member
from haru.cel.program import MeteredProgram, Program, instantiation_error, parse_and_check
from haru.cel.ranges import NOTHING, Estimate, Operand, Path, Range
from haru.cel.types import ANY, BOOL, DYN, STRING, Type, map_of, struct
from haru.cel.values import Value, equals_quietly, type_name
from haru.kube.meta import Obj
from haru.kube.quantity import parse_quantity

if TYPE_CHECKING:
    from haru.cel.mismatch import AtomResult

__all__ = [
    "CompileError",
    "DeviceSelector",
    "DeviceView",
    "EvaluationError",
    "Outcome",
    "compile_device_selector",
    "device_value",
    "explain_mismatch",
]

MAX_LIST_LENGTH = 48
COST_LIMIT = 1_000_000
DEVICE = struct("kubernetes.DRADevice")

_EMPTY: Obj = {}


class _Domains(dict[str, Obj]):
    """Maps by domain, of which every domain has one."""

    __slots__ = ()

    def __missing__(self, key: str) -> Obj:
        return _EMPTY

    def find(self, key: Value) -> Obj:
        """The map of a domain that is not there."""
        return _EMPTY


class DeviceView:
    """A device as selectors see it, in the form of resource.k8s.io/v1. Immutable."""

    __slots__ = ("_values", "allow_multiple_allocations", "attributes", "capacity", "driver")

    def __init__(
        self,
        driver: str,
        attributes: Mapping[str, Obj],
        capacity: Mapping[str, Obj],
        allow_multiple_allocations: bool = False,
    ) -> None:
        self.driver = driver
        self.attributes = attributes
        self.capacity = capacity
        self.allow_multiple_allocations = allow_multiple_allocations
        self._values: dict[bool, Obj | EvaluationError] = {}

    def value(self, list_attributes: bool) -> Obj:
        """The device as a CEL value. Raises EvaluationError for attributes without a usable value."""
        found = self._values.get(list_attributes)
        if found is None:
            try:
                found = self._build(list_attributes)
            except EvaluationError as error:
                found = error
            self._values[list_attributes] = found
        if isinstance(found, EvaluationError):
            raise EvaluationError(str(found))
        return found

    def _build(self, list_attributes: bool) -> Obj:
        attributes: dict[str, Obj] = {}
        capacity: dict[str, Obj] = {}
        for name, attribute in self.attributes.items():
            try:
                value = _attribute_value(attribute, list_attributes)
            except ValueError as error:
                raise EvaluationError(f"attribute {name}: {error}") from None
            _file(attributes, name, self.driver, value)
        for name, entry in self.capacity.items():
            try:
                amount = parse_quantity(entry.get("value", "0"))
            except ValueError as error:
                raise EvaluationError(f"capacity {name}: {error}") from None
            _file(capacity, name, self.driver, amount)
        return device_value(self.driver, attributes, capacity, bool(self.allow_multiple_allocations))


def device_value(
    driver: str, attributes: Mapping[str, Obj], capacity: Mapping[str, Obj], allow_multiple_allocations: bool
) -> Obj:
    """A device as a CEL value. Attributes (values) and capacities (quantities) are given by domain and id."""
    return {
        "driver": driver,
        "attributes": domains(attributes),
        "capacity": domains(capacity),
        "allowMultipleAllocations": allow_multiple_allocations,
    }


def domains(entries: Mapping[str, Obj]) -> dict[str, Obj]:
    """Attributes or capacities as a CEL value, in which every domain has a map."""
    return _Domains(entries)


def _file(domains: dict[str, Obj], name: str, driver: str, value: Value) -> None:
    domain, slash, id = name.partition("/")
    if not slash:
        domain, id = driver, name
    domains.setdefault(domain, {})[id] = value


def _version(text: str) -> Value:
    try:
        return parse_semver(text)
    except ValueError as error:
        raise ValueError(f"parse semantic version: {error}") from None


def _attribute_value(attribute: Obj, list_attributes: bool) -> Value:
    if list_attributes:
        for member_name in ("ints", "bools", "strings"):
            values = attribute.get(member_name)
            if values is not None:
                return list(values)
        versions = attribute.get("versions")
        if versions is not None:
            return [_version(text) for text in versions]
    for member_name in ("int", "bool", "string"):
        value = attribute.get(member_name)
        if value is not None:
            return value
    version = attribute.get("version")
    if version is not None:
        return _version(version)
    raise ValueError("unsupported attribute value")


def _includes(target: Value, wanted: Value) -> bool:
    if not isinstance(target, list | tuple):
        return equals_quietly(target, wanted)
    if any(equals_quietly(item, wanted) for item in target[:MAX_LIST_LENGTH]):
        return True
    if len(target) > MAX_LIST_LENGTH:
        raise EvaluationError(f"'includes' function cannot be applied to lists longer than {MAX_LIST_LENGTH} values")
    return False


_INCLUDES = Library("dra.includes", {"includes": (member("dra_includes_dyn_dyn", (DYN, DYN), BOOL, _includes),)})


def _includes_cost(_overload: str, _target: Operand | None, _args: list[Operand]) -> Estimate:
    return Estimate(Range(0, MAX_LIST_LENGTH))


_OVERLOAD_ESTIMATES = {**OVERLOAD_ESTIMATES, "dra_includes_dyn_dyn": _includes_cost}

# The longest that things may be, as the API limits them.
_MAX_ENTRIES, _MAX_DOMAIN, _MAX_ID, _MAX_VALUE, _MAX_DRIVER = 32, 63, 32, 64, 63
_NO_LIMIT = (1 << 63) - 1


_MEMBERS = {"driver": _MAX_DRIVER, "attributes": _MAX_ENTRIES, "capacity": _MAX_ENTRIES}
_MEMBERS["allowMultipleAllocations"] = 1


@lru_cache(maxsize=4096)
def _size_of(path: Path) -> Range | None:
    """The size of a part of the device. Everything here mirrors what 1.36 declares, and what it does not."""
    if path[0] != "device":
        return None
    if len(path) == 1:
        return NOTHING
    member_name, steps = path[1], path[2:]
    if not steps:
        return Range(0, _MEMBERS.get(member_name, _NO_LIMIT))
    if member_name not in ("attributes", "capacity") or len(steps) > 2:
        return None
    if steps == ("@keys",):
        return Range(0, _MAX_DOMAIN)
    if steps[0] not in ("@values", "@items"):
        return None
    return Range(0, _MAX_ENTRIES) if len(steps) == 1 else _inner_size(member_name, steps[1])


def _inner_size(member_name: str, step: str) -> Range | None:
    if step == "@keys":
        return Range(0, _MAX_ID)
    if member_name == "attributes":
        return Range(0, _MAX_VALUE)
    return NOTHING if step in ("@values", "@items") else None


@lru_cache(maxsize=8)
def environment(consumable_capacity: bool, list_attributes: bool, new: bool) -> Environment:
    """The declarations that a device selector may use."""
    attribute: Type = DYN if list_attributes else ANY
    fields = {
        "driver": STRING,
        "attributes": map_of(STRING, map_of(STRING, attribute)),
        "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
    }
    if consumable_capacity or not new:
        fields["allowMultipleAllocations"] = BOOL
    libraries = [*BASE, BINDINGS, *((_INCLUDES,) if list_attributes or not new else ())]
    return Environment(libraries, {"device": DEVICE}, {DEVICE.name: fields}, KUBERNETES)


class Outcome(NamedTuple):
    """A selector's answer for a device, or the error that took its place, and the cost of finding out."""

    value: bool | None
    error: EvaluationError | None
    cost: int

    def decide(self) -> bool:
        """The answer. Raises the error."""
        if self.error is not None:
            raise self.error
        return self.value is True


class DeviceSelector:
    """A compiled selector. `max_cost` is what an evaluation may cost at worst.

    An evaluation that costs more than 1,000,000 fails. Costs are only counted where `max_cost` does not exclude that.
    """

    __slots__ = ("_metered", "_program", "environment", "expression", "is_cheap", "list_attributes", "max_cost", "root")

    def __init__(self, expression: str, root: Node, declared: Environment, list_attributes: bool) -> None:
        self.expression = expression
        self.max_cost = estimate(root, _size_of, ESTIMATES, _OVERLOAD_ESTIMATES).high
        self.root = root
        self.environment = declared
        self.list_attributes = list_attributes
        self.is_cheap = self.max_cost <= COST_LIMIT
        """Whether no evaluation can cost too much, so that the costs need not be counted."""
        self._metered: MeteredProgram | None = None
        self._program: Program | None = None

    def matches(self, device: DeviceView) -> bool:
        """Whether the device is selected. Raises EvaluationError: the attempt fails, it is not a mere "no"."""
        value = device.value(self.list_attributes)
        if not self.is_cheap:
            return self._measured(value).decide()
        if self._program is None:
            self._program = Program(self.root, self.environment, ("device",))
        result = self._program.evaluate(value)
        if result is True or result is False:
            return result
        raise EvaluationError(not_bool(result))

    def measure(self, device: DeviceView) -> Outcome:
        """Like `matches`, with what the evaluation cost. Raises EvaluationError only for an unusable device."""
        return self._measured(device.value(self.list_attributes))

    def _measured(self, value: Obj) -> Outcome:
        if self._metered is None:
            self._metered = MeteredProgram(self.root, self.environment, ("device",))
        result, error, cost = self._metered.measure(COST_LIMIT, value)
        if error is None and result.__class__ is not bool:
            error = EvaluationError(not_bool(result))
        return Outcome(None if error is not None else result, error, cost)


def explain_mismatch(selector: DeviceSelector, device: DeviceView) -> list[AtomResult]:
    """Evaluate each condition of a selector for a device, with the values that it read.

    Raises EvaluationError for a device with an attribute that has no usable value.
    """
    # Imported late: only people ask for explanations.
    from haru.cel.mismatch import explain

    return explain(selector.expression, selector.environment, ("device",), device.value(selector.list_attributes))


def not_bool(value: Value) -> str:
    """Describe the error of a selector whose value is no boolean."""
    name = type_name(value)
    if value.__class__ is int:
        reason = "unsupported type conversion from 'int' to bool"
    elif isinstance(value, Semver):
        reason = "type conversion error from 'Semver' to 'bool'"
    elif isinstance(value, str):
        reason = "unsupported native conversion from string to 'bool'"
    elif isinstance(value, list | dict):
        reason = f"type conversion error from {name} to 'bool'"
    else:
        reason = f"type conversion error from '{name}' to 'bool'"
    return f"CEL result of type {name} could not be converted to bool: {reason}"


@lru_cache(maxsize=1024)
def compile_device_selector(
    expression: str, *, consumable_capacity: bool = True, list_attributes: bool = False, new: bool = True
) -> DeviceSelector:
    """Compile a selector. Raises CompileError.

    `consumable_capacity` and `list_attributes` are the feature gates. `new` is for an expression that a user is
    storing just now: what belongs to a feature that is off is unknown then, while an expression stored before may use
    it.
    """
    declared = environment(consumable_capacity, list_attributes, new)
    try:
        root = parse_and_check(expression, declared)
    except CompileError as error:
        raise CompileError(f"compilation failed: {error}", error.line, error.column) from None
    if root.type not in (BOOL, ANY, *((DYN,) if list_attributes else ())):
        raise CompileError(f"must evaluate to bool or the unknown type, not {root.type}")
    problem = instantiation_error(root, declared)
    if problem:
        raise CompileError(problem)
    return DeviceSelector(expression, root, declared, list_attributes)
