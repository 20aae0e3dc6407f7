"""Haru: Kubernetes 1.36's accelerator stack, one decision engine behind four doors.

    snapshot = haru.Snapshot.read("cluster.json")    # or .of(objects), .fetch(), .kept_in(data_dir)
    snapshot.explain("podgroup/training")
    snapshot.what_if(haru.Cordon("dgx-h100-0"))
    snapshot.schedule()
    snapshot.allocate()
    haru.lint_manifests("job.yaml")

Docs: docs/reference/python.md. What is named here is imported when it is first used, so that `import haru`
costs nothing; the types are in `__init__.pyi`.
"""

_HOME = {
    "AddNodes": "haru.api.changes",
    "Apply": "haru.api.changes",
    "ChangeInputError": "haru.errors",
    "ClusterError": "haru.errors",
    "Cordon": "haru.api.changes",
    "Delete": "haru.api.changes",
    "HaruError": "haru.errors",
    "InputError": "haru.errors",
    "NotFoundError": "haru.errors",
    "Repartition": "haru.api.changes",
    "Snapshot": "haru.api.snapshot",
    "Taint": "haru.api.changes",
    "__version__": "haru.version",
    "lint_manifests": "haru.api.lint",
}

__all__ = ["dra", *_HOME]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "dra":
        return import_module("haru.dra")
    if name not in _HOME:
        raise AttributeError(f"module 'haru' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
