"""What an expression may speak of: variables, functions, macros and types.

An `Environment` is a value: declarations plus libraries. The device environment and the admission environments are
the same compiler over different environments. Names are resolved in a container (`a.b` is tried before `a`), as CEL
demands.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from haru.cel.macros import STANDARD, MacroTable
from haru.cel.overloads import Overload
from haru.cel.types import DYN, Type, type_of_type


class Library:
    """Functions, macros and type names that belong together."""

    __slots__ = ("functions", "macros", "name", "types")

    def __init__(
        self,
        name: str,
        functions: Mapping[str, Sequence[Overload]],
        macros: MacroTable | None = None,
        types: Sequence[Type] = (),
    ) -> None:
        self.name = name
        self.functions = functions
        self.macros: MacroTable = macros or {}
        self.types = types


class Dialect(NamedTuple):
    """In what an environment departs from the specification, and the container of its names.

    `kubernetes` is where Kubernetes is stricter or laxer: elements of list and map literals have one type, format
    strings are checked, but keys of map literals are not. `open_type` is the name of a type whose fields have any name
    and are `dyn`; so are those of every type named below it (`Object`, `Object.spec`).
    """

    container: str = ""
    kubernetes: bool = False
    quoted_fields: bool = False
    use_macros: bool = True
    open_type: str = ""


SPECIFIED = Dialect()
KUBERNETES = Dialect(kubernetes=True)


class Environment:
    """Declarations, ready for the checker.

    `structs` gives the fields of message types; a type without an entry there has no fields that an expression can
    name.
    """

    def __init__(
        self,
        libraries: Sequence[Library],
        variables: Mapping[str, Type] | None = None,
        structs: Mapping[str, Mapping[str, Type]] | None = None,
        dialect: Dialect = SPECIFIED,
    ) -> None:
        container, kubernetes, quoted_fields, use_macros, open_type = dialect
        self.open_type = open_type
        self.variables: dict[str, Type] = dict(variables or {})
        self.structs = dict(structs or {})
        self.container = container
        self.kubernetes = kubernetes
        self.quoted_fields = quoted_fields
        self.functions: dict[str, tuple[Overload, ...]] = {}
        self.constants: dict[str, Type] = {}
        self.resolved: dict[Hashable, tuple[tuple[Overload, ...], Type, int]] = {}
        """What the checker found for calls of a function with operands of known types: the overloads, the type, and
        how many type parameters it took."""
        self.macros: dict[tuple[str, int, bool], Any] = dict(STANDARD) if use_macros else {}
        for library in libraries:
            for name, overloads in library.functions.items():
                self.functions[name] = self.functions.get(name, ()) + tuple(overloads)
            if use_macros:
                self.macros.update(library.macros)
            for declared in library.types:
                self.constants[declared.name] = declared

    def candidates(self, name: str) -> Iterator[str]:
        """The full names that a name may stand for, most specific first. A leading dot allows only the name itself."""
        if name.startswith("."):
            yield name[1:]
            return
        container = self.container
        while container:
            yield f"{container}.{name}"
            container = container.rpartition(".")[0]
        yield name

    def find_variable(self, name: str) -> tuple[str, Type, Type | None] | None:
        """Full name, type, and for the name of a type that type itself."""
        for candidate in self.candidates(name):
            declared = self.variables.get(candidate)
            if declared is not None:
                return candidate, declared, None
            constant = self.constants.get(candidate)
            if constant is not None:
                return candidate, type_of_type(constant), constant
        return None

    def find_function(self, name: str) -> tuple[str, tuple[Overload, ...]] | None:
        """Full name and overloads."""
        for candidate in self.candidates(name):
            overloads = self.functions.get(candidate)
            if overloads is not None:
                return candidate, overloads
        return None

    def find_struct(self, name: str) -> tuple[str, Mapping[str, Type]] | None:
        """Full name and fields of a message type."""
        for candidate in self.candidates(name):
            fields = self.fields_of(candidate)
            if fields is not None:
                return candidate, fields
        return None

    def fields_of(self, name: str) -> Mapping[str, Type] | None:
        """The fields of a message type by its full name."""
        if self.open_type and (name == self.open_type or name.startswith(f"{self.open_type}.")):
            return _ANY_FIELDS
        return self.structs.get(name)


class _AnyFields(dict[str, Type]):
    """Fields of any name."""

    def get(self, key: str, default: Any = None) -> Any:
        """`dyn`, whatever the name."""
        return DYN


_ANY_FIELDS = _AnyFields()
