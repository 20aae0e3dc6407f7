"""An operator in kopf, as its users write them: handlers, a timer, a daemon of its own for each object, a finalizer.

Run as `kopf run`; it is told apart from the test by being a process of its own.
"""

from __future__ import annotations

from typing import Any

import kopf

GROUP = ("ml.example.com", "v1", "trainings")


@kopf.on.startup()
def settle(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.level = 40
    settings.watching.server_timeout = 60
    settings.persistence.finalizer = "example.com/operator"


@kopf.on.create(*GROUP)
def created(spec: Any, patch: Any, **_: Any) -> dict[str, Any]:
    patch.status["phase"] = f"created for {spec['model']}"
    return {"seen": spec["replicas"]}


@kopf.on.update(*GROUP, field="spec.replicas")
def updated(old: Any, new: Any, patch: Any, **_: Any) -> None:
    patch.status["phase"] = f"from {old} to {new}"


@kopf.on.delete(*GROUP)
def deleted(name: str, **_: Any) -> None:
    print(f"farewell {name}", flush=True)


@kopf.timer(*GROUP, interval=0.2)
def ticked(status: Any, patch: Any, **_: Any) -> None:
    patch.status["replicas"] = int(status.get("replicas") or 0) + 1
