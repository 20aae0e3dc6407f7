"""What printers are made of: columns, ages, and the small texts that recur (`<none>`, `1/3`, `a=b`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from haru.kube.meta import Obj, get_condition, value_at

Cells = Callable[[Obj], list[Any]]

NONE = "<none>"
UNKNOWN, INVALID = "<unknown>", "<invalid>"
UNSET = "<unset>"


@dataclass(frozen=True, slots=True)
class Age:
    """A cell that says how long ago something was, in `form`: the only kind of cell whose text depends on the time."""

    then: datetime
    form: str = "{}"

    def text(self, now: datetime) -> str:
        """The cell as it is at a time."""
        return self.form.format(human_duration((now - self.then).total_seconds()))


@dataclass(frozen=True, slots=True)
class Printer:
    """The columns of a kind, and the cells of one object, some of which are ages."""

    columns: tuple[Obj, ...]
    cells: Cells
    order: Callable[[Obj], Any] | None = None
    """By what the rows of a table are sorted; None: they come as the objects do."""


def column(name: str, type: str = "string", *, wide: bool = False, description: str = "", named: bool = True) -> Obj:
    """One column definition; `wide` columns are shown with `-o wide` only, `named` ones may hold a name."""
    return {
        "name": name,
        "type": type,
        "format": "name" if named and name in _NAMES else "",
        "description": description or _DESCRIPTIONS.get(name, ""),
        "priority": 1 if wide else 0,
    }


_NAMES = ("Name", "Attacher")
_DESCRIPTIONS = {
    "Name": "The object's name.",
    "Age": "How long ago the object was created.",
    "Created At": "When the object was created.",
    "Containers": "The names of the containers.",
    "Images": "The images of the containers.",
    "Selector": "The labels by which pods are selected.",
}


def printer(spec: str, cells: Cells, order: Callable[[Obj], Any] | None = None) -> Printer:
    """Columns out of a short text: `Name Ready:integer IP* Node_Name*`; `*` is wide, `_` a blank."""
    columns = []
    for word in spec.split():
        wide = word.endswith("*")
        name, _, kind = word.rstrip("*").partition(":")
        columns.append(column(name.replace("_", " "), kind or "string", wide=wide))
    return Printer(tuple(columns), cells, order)


def human_duration(seconds: float) -> str:
    """A length of time in two units at most, coarser as it grows: `42s`, `3m10s`, `5d3h`, `2y`."""
    whole = int(seconds)
    if whole < -1:
        return INVALID
    if whole < 0:
        return "0s"
    if whole < 120:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    if minutes < 10:
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours, rest = divmod(minutes, 60)
    if hours < 8:
        return f"{hours}h{rest}m" if rest else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days, rest = divmod(hours, 24)
    if days < 8:
        return f"{days}d{rest}h" if rest else f"{days}d"
    if days < 730:
        return f"{days}d"
    years, rest = divmod(days, 365)
    if years < 8:
        return f"{years}y{rest}d" if rest else f"{years}y"
    return f"{years}y"


def instant(text: Any) -> datetime | None:
    """The time that an RFC 3339 text means; None for an absent or broken one."""
    if not isinstance(text, str) or not text:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def since(text: Any, form: str = "{}") -> Age | str:
    """How long ago a time was, in a form, or `<unknown>`."""
    then = instant(text)
    return Age(then, form) if then is not None else UNKNOWN


def age(obj: Obj) -> Age | str:
    """How long ago the object was created."""
    return since(meta(obj).get("creationTimestamp"))


def meta(obj: Obj) -> Obj:
    """The object's metadata."""
    return obj.get("metadata") or {}


def name(obj: Obj) -> str:
    """The object's name."""
    return str(meta(obj).get("name", ""))


def spec(obj: Obj) -> Obj:
    """The object's spec."""
    return obj.get("spec") or {}


def status(obj: Obj) -> Obj:
    """The object's status."""
    return obj.get("status") or {}


def condition(obj: Obj, type: str) -> Obj:
    """The condition of that type, or an empty one."""
    return get_condition(obj, type) or {}


def joined(items: Iterable[Any], default: str = NONE) -> str:
    """Comma-separated, or `<none>`."""
    return ",".join(str(item) for item in items) or default


def pairs(labels: Mapping[str, Any] | None) -> str:
    """`a=b,c=d` in the order of keys, or `<none>`."""
    return joined(f"{key}={value}" for key, value in sorted((labels or {}).items()))


def label_selector(selector: Obj | None, default: str = NONE) -> str:
    """A label selector in the form of the command line."""
    if not selector:
        return default
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for item in selector.get("matchExpressions") or ():
        key, operator, values = item.get("key"), item.get("operator"), ",".join(item.get("values") or ())
        forms = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "DoesNotExist": f"!{key}"}
        parts.append(forms.get(str(operator), str(key)))
    return ",".join(parts) or default


def containers_of(template: Obj | None) -> list[Any]:
    """Three cells of a pod template: containers and images."""
    containers = value_at(template or {}, "spec", "containers") or []
    names = ",".join(str(c.get("name", "")) for c in containers)
    return [names, ",".join(str(c.get("image", "")) for c in containers)]


def between(*cells: Callable[[Obj], Any]) -> Cells:
    """A row of the name, these cells and the age."""
    return lambda obj: [name(obj), *(cell(obj) for cell in cells), age(obj)]
