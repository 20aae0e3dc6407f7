"""Corrected texts of selectors: operators that a Quantity or a version does not have, fields in the wrong table.

Works on the text, so that the rest of an expression stays as its author wrote it. What comes out is only suggested
if it compiles.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from haru.cel.device import compile_device_selector
from haru.cel.errors import CompileError
from haru.kube.quantity import parse_quantity
from haru.lint.published import DRIVERS, MEMORY_WORDS, STANDARD, STANDARD_DOMAIN, plain

Part = tuple[str, str]
"""A piece of an expression, and what replaces it."""

_ACCESS = (
    r"""device\s*\.\s*(?P<table>attributes|capacity)\s*\[\s*(?P<q>["'])(?P<domain>[^"'\]]+)(?P=q)\s*\]\s*"""
    r"""(?:\.\s*(?P<name>\w+)|\[\s*(?P<p>["'])(?P<key>[^"'\]]+)(?P=p)\s*\])"""
)
_OPERATOR = r"(?P<op>>=|<=|==|!=|<|>)"
_RIGHT = r"""(?P<right>(?:quantity|semver)\(\s*(?:"[^"]*"|'[^']*')\s*\)|"[^"]*"|'[^']*'|-?[0-9]+(?:\.[0-9]+)?)"""
_FORWARD = re.compile(rf"(?P<access>{_ACCESS})\s*{_OPERATOR}\s*{_RIGHT}(?!\s*[.\w])")
_BACKWARD = re.compile(rf"(?<![\w.)\"']){_RIGHT}\s*{_OPERATOR}\s*(?P<access>{_ACCESS})(?!\s*[.\w(\[])")
_METHOD = re.compile(
    rf"(?P<access>{_ACCESS})\s*\.\s*(?P<method>compareTo|isGreaterThan|isLessThan)"
    r"""\(\s*(?P<right>"[^"]*"|'[^']*'|[0-9]+(?:\.[0-9]+)?)\s*\)"""
)
_MIRROR = {">=": "<=", "<=": ">=", "<": ">", ">": "<"}
_LITERAL = re.compile(r"""["']([^"']*)["']""")
_GIGA_NAMES = re.compile(r"gi?b$|gigs$|gibibytes$|gigabytes$")
_MEGA_NAMES = re.compile(r"mi?b$|megabytes$|mebibytes$")
_SUBJECT_AT = re.compile(_ACCESS)


def compiles(expression: str) -> bool:
    """Whether the API would take an expression."""
    try:
        compile_device_selector(expression, list_attributes=True)
    except CompileError:
        return False
    return True


def replaced(expression: str, parts: tuple[Part, ...]) -> str:
    """The expression with the pieces exchanged."""
    for old, new in parts:
        expression = expression.replace(old, new)
    return expression


def usable(expression: str, parts: tuple[Part, ...]) -> bool:
    """Whether the pieces exchanged give an expression that compiles, and another one."""
    return bool(parts) and replaced(expression, parts) not in ("", expression) and compiles(replaced(expression, parts))


def operators(expression: str) -> tuple[Part, ...]:
    """Comparisons of capacities and versions by operators, as compareTo; bare texts as quantities and versions."""
    parts = dict(_comparisons(expression, _compared))
    for match in _METHOD.finditer(expression):
        wrapped = _wrapped(match)
        if wrapped is not None:
            parts.setdefault(match[0], f"{match['access']}.{match['method']}({wrapped})")
    return tuple(parts.items())


def _comparisons(expression: str, change: Callable[[re.Match[str], str], str | None]) -> tuple[Part, ...]:
    parts: dict[str, str] = {}
    for pattern, mirrored in ((_FORWARD, False), (_BACKWARD, True)):
        for match in pattern.finditer(expression):
            operator = match["op"]
            new = change(match, _MIRROR.get(operator, operator) if mirrored else operator)
            if new is not None and new != match[0]:
                parts.setdefault(match[0], new)
    return tuple(parts.items())


def _wrapped(match: re.Match[str]) -> str | None:
    name = match["name"] or match["key"]
    if match["table"] == "capacity":
        return _as_quantity(match["right"], name)
    return _as_version(match["right"]) if _attribute_type(match["domain"], name) == "version" else None


def _compared(match: re.Match[str], operator: str) -> str | None:
    name = match["name"] or match["key"]
    if match["table"] == "capacity":
        wrapped = _as_quantity(match["right"], name)
    elif _attribute_type(match["domain"], name) == "version" or match["right"].startswith("semver"):
        wrapped = _as_version(match["right"])
    else:
        wrapped = match["right"] if match["right"].startswith("quantity") else None
    return None if wrapped is None else f"{match['access']}.compareTo({wrapped}) {operator} 0"


def _attribute_type(domain: str, name: str) -> str:
    driver = DRIVERS.get(domain)
    return driver.attributes.get(name, "") if driver is not None else ""


def _as_quantity(right: str, name: str) -> str | None:
    if right.startswith("quantity"):
        return right
    literal = _LITERAL.search(right)
    if literal is None:
        return f'quantity("{right}{_unit(name, right)}")'
    return f'quantity("{mended_quantity(literal[1])}")' if mended_quantity(literal[1]) else None


def _unit(name: str, number: str) -> str:
    """The unit that a number of memory was probably meant in; others are counts."""
    folded = plain(name)
    if _MEGA_NAMES.search(folded):
        return "Mi"
    is_memory = _GIGA_NAMES.search(folded) is not None or folded in MEMORY_WORDS
    return "Gi" if is_memory and float(number) < 100_000 else ""


def _as_version(right: str) -> str | None:
    literal = _LITERAL.search(right)
    version = mended_version(literal[1] if literal is not None else right)
    return f'semver("{version}")' if version else None


def mended_version(text: str) -> str:
    """`8.0` -> `8.0.0`, `580.65.06` -> `580.65.6`, `v1.2.3` -> `1.2.3`; empty when it is not clear."""
    match = re.fullmatch(r"[vV]?(\d{1,9})(?:\.(\d{1,9}))?(?:\.(\d{1,9}))?((?:[-+][0-9A-Za-z.-]+)?)", text.strip())
    if match is None:
        return ""
    return ".".join(str(int(number or 0)) for number in match.groups()[:3]) + match[4]


def mended_quantity(text: str) -> str:
    """`16GB` -> `16G`, `16 GiB` -> `16Gi`, `16gb` -> `16G`; a good one as it is; empty when it is not clear."""
    try:
        parse_quantity(text)
        return text
    except ValueError:
        pass
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgtp])(i?)b?(?:ytes)?", text.strip(), re.IGNORECASE)
    if match is None:
        return ""
    letter = match[2].upper() if match[3] or match[2].lower() != "k" else "k"
    return f"{match[1]}{letter}{match[3].lower()}"


# --- the wrong table, the wrong name


def memory_attribute(expression: str, domain: str, name: str, capacity: str) -> tuple[Part, ...]:
    """Comparisons of an attribute that means memory, as ones of the capacity."""

    def change(match: re.Match[str], operator: str) -> str | None:
        if (match["table"], match["domain"], match["name"] or match["key"]) != ("attributes", domain, name):
            return None
        wrapped = _as_quantity(match["right"], name)
        return None if wrapped is None else f'device.capacity["{domain}"].{capacity}.compareTo({wrapped}) {operator} 0'

    return _comparisons(expression, change)


def moved(expression: str, table: str, domain: str, name: str, to: tuple[str, str, str]) -> tuple[Part, ...]:
    """Every access to a name, as one to another table, domain and name."""
    new = f'device.{to[0]}["{to[1]}"].{to[2]}'
    return tuple(
        {
            match[0]: new
            for match in _SUBJECT_AT.finditer(expression)
            if (match["table"], match["domain"], match["name"] or match["key"]) == (table, domain, name)
        }.items()
    )


_JOINED = re.compile(r"""device\.(attributes|capacity)\[(["'])([^"'/\]]+)/([A-Za-z_]\w*)\2\]""")
_HYPHEN = re.compile(_ACCESS + r"(?P<rest>(?:-[A-Za-z]\w*)+)")
_UNQUOTED = re.compile(r"device\.(attributes|capacity)\.((?:[a-z0-9-]+\.)+[a-z]+)\.([A-Za-z_]\w*)")


def domains(expression: str) -> tuple[Part, ...]:
    """Accesses as they must be: `attributes["domain/name"]`, `attributes.domain.name`, `….numa-node`."""
    parts = {m[0]: f'device.{m[1]}["{m[3]}"].{m[4]}' for m in _JOINED.finditer(expression)}
    for m in _UNQUOTED.finditer(expression):
        if m[2] in DRIVERS or m[2] == STANDARD_DOMAIN:
            parts[m[0]] = f'device.{m[1]}["{m[2]}"].{m[3]}'
    for m in _HYPHEN.finditer(expression):
        name = plain(f"{m['name'] or ''}{m['rest']}")
        for domain, names in ((STANDARD_DOMAIN, STANDARD), *((d.name, d.attributes) for d in DRIVERS.values())):
            known = next((one for one in names if plain(one) == name), "")
            if m["name"] and known and domain in (STANDARD_DOMAIN, m["domain"]):
                parts.setdefault(m[0], f'device.attributes["{domain}"].{known}')
    return tuple(parts.items())


def guarded(expression: str, driver: str) -> str:
    """The expression for devices of one driver only."""
    simple = "||" not in expression and "?" not in expression
    return f'device.driver == "{driver}" && {expression if simple else f"({expression})"}'
