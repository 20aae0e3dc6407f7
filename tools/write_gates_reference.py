"""Writes docs/reference/feature-gates.md from the table of gates: `python tools/write_gates_reference.py`."""

from __future__ import annotations

from pathlib import Path

from haru.kube.gate_table import NEWEST, OLDEST, Gate, gates_of

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "feature-gates.md"
HEAD = """\
# Feature gates

<!-- Written by tools/write_gates_reference.py from the table of gates; do not edit by hand. -->

Every gate that Haru knows, by its name in Kubernetes 1.36, with its stage and default there. `--feature-gates
NAME=true,NAME=false` of `haru apiserver`, `haru scheduler`, `haru controllers` and `haru up` switches them, with the
rules of 1.36:

- A gate that is locked can be set to its default only. An unknown name, and a value that is neither true nor false, is
  an error that says which.
- A gate whose requirement is off is off too; to turn it on by name without the requirement is an error.
- `AllAlpha` and `AllBeta` stand for all of a stage; a gate named beside them wins.
- With `--emulated-version 1.35` stage and default are those of 1.35. A gate that came later can not be set then.

`/metrics` of the API server, the scheduler and the controllers has `kubernetes_feature_enabled{name,stage}`, 1 for what
is on; the stage of what is generally available is empty there. `haru up` turns the gates of accelerators and gangs on,
and says so. The gates of what Haru does not have, as those of the kubelet, are known, so that flags can be copied, and
change nothing.

"""


def page() -> str:
    """The whole page."""
    before, now = gates_of(OLDEST), gates_of(NEWEST)
    lines = [
        f"| gate | 1.{NEWEST} | default | 1.{OLDEST} | default | requires |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, gate in now.items():
        told = f"{_told(gate)} | {_told(before.get(name))}"
        lines.append(f"| `{name}` | {told} | {', '.join(gate.requires)} |".replace("|  |", "| |"))
    return HEAD + "\n".join(lines) + "\n"


def _told(gate: Gate | None) -> str:
    if gate is None:
        return "– | –"
    state = "on" if gate.default else "off"
    return f"{gate.stage.lower() if gate.stage != 'GA' else 'GA'} | {state}{', locked' if gate.locked else ''}"


if __name__ == "__main__":
    PAGE.write_text(page())
