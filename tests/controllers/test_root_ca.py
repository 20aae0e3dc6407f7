"""The cluster's authority in every namespace, for what runs in pods."""

from __future__ import annotations

from pathlib import Path

import pytest

from haru.cli.controllers import _authority
from haru.cli.main import UsageError
from haru.controllers.objects import NAMESPACES
from haru.controllers.root_ca import CONFIG_MAPS

NAME = "root-ca-certificate-publisher-controller"
MAP = "kube-root-ca.crt"


async def published(cluster, namespace: str) -> bool:
    found = await cluster.get(CONFIG_MAPS, MAP, namespace)
    return found is not None and found["data"] == {"ca.crt": "an authority"}


async def test_every_namespace_gets_root_ca_config_map(cluster):
    await cluster.start(NAME, **{"root-ca": "an authority"})
    for namespace in ("ns", "kube-system"):
        await cluster.eventually(lambda namespace=namespace: published(cluster, namespace))
    await cluster.create(NAMESPACES, {"metadata": {"name": "young"}})
    await cluster.eventually(lambda: published(cluster, "young"))
    await cluster.client.patch(CONFIG_MAPS, MAP, {"data": {"ca.crt": "another", "more": "x"}}, "ns")
    await cluster.eventually(lambda: published(cluster, "ns"))
    await cluster.client.delete(CONFIG_MAPS, MAP, "ns")
    await cluster.eventually(lambda: published(cluster, "ns"))
    assert await cluster.forbidden() == 0


async def test_missing_description_of_root_ca_config_map_is_restored(cluster):
    await cluster.start(NAME, **{"root-ca": "an authority"})
    await cluster.eventually(lambda: published(cluster, "ns"))
    annotations = {"kubernetes.io/description": None, "mine": "x"}
    await cluster.client.patch(CONFIG_MAPS, MAP, {"metadata": {"annotations": annotations}}, "ns")

    async def mended():
        found = (await cluster.get(CONFIG_MAPS, MAP))["metadata"]["annotations"]
        return found.get("kubernetes.io/description") and found.get("mine") == "x"

    await cluster.eventually(mended, 5)


async def test_root_ca_config_map_created_by_another_is_overwritten(cluster):
    """The controller has not seen it yet: its own creation fails, and has to be tried again as an update."""
    manager = await cluster.start(NAME, **{"root-ca": "an authority"})
    await cluster.eventually(lambda: published(cluster, "ns"))
    controller = manager.running[NAME]
    create = controller.client.create

    async def too_late(kind, obj, *args, **options):
        if obj["metadata"]["name"] == MAP and obj["metadata"]["namespace"] == "young":
            foreign = {"metadata": {"name": MAP, "namespace": "young"}, "data": {"ca.crt": "another"}}
            controller.client.create = create
            await cluster.create(CONFIG_MAPS, foreign, "young")
        return await create(kind, obj, *args, **options)

    controller.client.create = too_late
    await cluster.create(NAMESPACES, {"metadata": {"name": "young"}})
    await cluster.eventually(lambda: published(cluster, "young"), 5)


async def test_controller_without_root_ca_does_not_run(cluster):
    manager = await cluster.start(NAME)
    assert not manager.running


def test_root_ca_file_without_certificate_is_refused(tmp_path: Path) -> None:
    assert _authority(None) == ""
    file = tmp_path / "ca.crt"
    with pytest.raises(UsageError, match="No such file"):
        _authority(file)
    file.write_text("nothing")
    with pytest.raises(UsageError, match="holds no certificate in PEM"):
        _authority(file)
