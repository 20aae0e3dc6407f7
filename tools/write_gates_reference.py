"""Write docs/reference/feature-gates.md from the table of gates: `python tools/write_gates_reference.py`."""

from __future__ import annotations

from pathlib import Path

from haru.kube.gate_table import NEWEST, OLDEST, Gate, gates_of

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "feature-gates.md"
HEAD = """\
# Feature gates

<!-- Written by tools/write_gates_reference.py from the table of gates; do not edit by hand. -->

The table lists every feature gate of Kubernetes 1.36 that Haru knows, with its stage and default. Set gates with
`--feature-gates NAME=true,NAME=false` of `haru apiserver`, `haru scheduler`, `haru controllers`, `haru node` and
`haru up`. The rules are those of 1.36:

- A locked gate accepts only its default. An unknown name, or a value other than true or false, is an error that names
  the gate.
- A gate is off while a gate that it requires is off. To turn it on by name without that gate is an error.
- `AllAlpha` and `AllBeta` set all gates of a stage; a gate that is named explicitly overrides them.
- With `--emulated-version 1.35` stages and defaults are those of 1.35, and gates that are new in 1.36 cannot be set.

`/metrics` of the API server, the scheduler and the controllers has `kubernetes_feature_enabled{name,stage}` with the
value 1 for each enabled gate; the stage of a GA gate is empty. `haru up` enables the gates for accelerators and gangs,
and reports them. Gates of components that Haru does not have, such as the kubelet's, are accepted, so that flags can be
copied, and have no effect.

"""


def page() -> str:
    """Return the whole page."""
    before, now = gates_of(OLDEST), gates_of(NEWEST)
    lines = [
        f"| gate | 1.{NEWEST} | default | 1.{OLDEST} | default | requires |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, gate in now.items():
        states = f"{_state_of(gate)} | {_state_of(before.get(name))}"
        lines.append(f"| `{name}` | {states} | {', '.join(gate.requires)} |".replace("|  |", "| |"))
    return HEAD + "\n".join(lines) + "\n"


def _state_of(gate: Gate | None) -> str:
    if gate is None:
        return "– | –"
    state = "on" if gate.default else "off"
    return f"{gate.stage.lower() if gate.stage != 'GA' else 'GA'} | {state}{', locked' if gate.locked else ''}"


if __name__ == "__main__":
    PAGE.write_text(page())
