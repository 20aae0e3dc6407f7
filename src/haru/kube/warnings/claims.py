"""Amounts of bytes that are no whole numbers."""

from __future__ import annotations

from collections.abc import Iterator

from haru.kube.meta import Obj
from haru.kube.quantity import parse_quantity

_NANO_PER_UNIT = 10**9
_NANO_PER_MILLI = 10**6


def volume_claim_warnings(spec: Obj, path: str) -> Iterator[str]:
    """List the warnings about a PersistentVolumeClaim's spec at `path`."""
    resources = spec.get("resources") or {}
    for kind in ("requests", "limits"):
        yield from fraction_warnings(resources.get(kind), f"{path}.resources.{kind}", ("storage",))


def fraction_warnings(amounts: Obj | None, path: str, names: tuple[str, ...]) -> Iterator[str]:
    """Of these resources, those of which fractions of a byte are asked for."""
    if not amounts:
        return
    for name in names:
        text = amounts.get(name)
        if text is None or (isinstance(text, str) and text[-1:] in "0123456789i" and text.isalnum()):
            continue  # digits with at most a binary suffix: whole bytes
        amount = parse_quantity(text)
        if -(-amount.nano // _NANO_PER_MILLI) * _NANO_PER_MILLI % _NANO_PER_UNIT:
            yield f'{path}[{name}]: fractional byte value "{amount}" is invalid, must be an integer'
