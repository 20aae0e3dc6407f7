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

__version__ = "0.1.0"

_HOME = {
    "AddNodes": "haru.answers.changes",
    "Apply": "haru.answers.changes",
    "ChangeInputError": "haru.errors",
    "ClusterError": "haru.errors",
    "Cordon": "haru.answers.changes",
    "Delete": "haru.answers.changes",
    "HaruError": "haru.errors",
    "InputError": "haru.errors",
    "NotFoundError": "haru.errors",
    "Repartition": "haru.answers.changes",
    "Snapshot": "haru.answers.snapshot",
    "Taint": "haru.answers.changes",
    "lint_manifests": "haru.answers.linting",
}

__all__ = ["__version__", "dra", *_HOME]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "dra":
        return import_module("haru.dra")
    if name not in _HOME:
        raise AttributeError(f"module 'haru' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
