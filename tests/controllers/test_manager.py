"""The manager: what runs, what does not, and what happens when one fails."""

import asyncio
from collections import Counter

from haru.client.shared_informers import SharedInformers
from haru.controllers.manager import CONTROLLERS, ControllerManager
from haru.controllers.objects import NAMESPACES, PODS, SERVICE_ACCOUNTS
from haru.controllers.service_account import ServiceAccountController
from haru.kube.gates import FeatureGates

NEED_AN_AUTHORITY = {
    "certificatesigningrequest-signing-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-token-controller",
}


async def test_all_controllers_run_with_accelerator_gates(cluster):
    manager = await cluster.start("*")
    assert set(CONTROLLERS) - set(manager.running) == NEED_AN_AUTHORITY
    assert manager.started
    assert b'running_managed_controllers{manager="haru-controllers",name="job-controller"} 1.0' in manager.metrics()


async def test_controllers_without_their_gate_do_not_run(cluster):
    cluster.gates = FeatureGates()
    manager = await cluster.start("*")
    gated = {"podgroup-protection-controller", "resourcepoolstatusrequest-controller", "stale-gang-controller"}
    gated |= NEED_AN_AUTHORITY
    assert set(CONTROLLERS) - set(manager.running) == gated


async def test_manager_waits_until_server_is_ready(cluster):
    class Late:
        """The server, after some answers 503."""

        def __init__(self, app):
            self.app, self.refused = app, 0

        async def __call__(self, scope, receive, send):
            if self.refused < 2:
                self.refused += 1
                await send({"type": "http.response.start", "status": 503, "headers": []})
                await send({"type": "http.response.body", "body": b"starting"})
                return
            await self.app(scope, receive, send)

    transport = cluster.client_of("manager")._transport
    transport._app = late = Late(transport._app)
    await cluster.start("serviceaccount-controller")
    assert late.refused == 2


async def test_failed_controller_is_restarted(cluster, monkeypatch, caplog):
    failures = 0
    background = ServiceAccountController.background

    def failing(self):
        async def fail():
            nonlocal failures
            failures += 1
            raise RuntimeError("broken")

        return (fail,) if failures < 1 else background(self)

    monkeypatch.setattr(ServiceAccountController, "background", failing)
    await cluster.start("serviceaccount-controller")
    await cluster.create(NAMESPACES, {"metadata": {"name": "fresh"}})

    async def there():
        return await cluster.get(SERVICE_ACCOUNTS, "default", "fresh")

    await cluster.eventually(there)
    assert failures == 1
    assert "serviceaccount-controller failed and is started again" in caplog.text


async def test_cancelled_manager_leaves_no_tasks(cluster):
    def running():
        # By what they do. The server waits for changes of its own, each time in other tasks (test_object_changes.py).
        others = (task for task in asyncio.all_tasks() if not task.get_name().startswith("haru apiserver: changes"))
        return Counter(task.get_coro().__qualname__ for task in others if not task.done())

    before = running()
    manager = ControllerManager(cluster.client, cluster.gates)
    task = asyncio.create_task(manager.run())
    await asyncio.wait_for(manager.wait_started(), 60)
    assert running() > before
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.sleep(0)
    assert running() <= before


async def test_metadata_informer_is_shared_with_full_informer(cluster):
    informers = SharedInformers(cluster.client)
    full = informers.get(PODS)
    assert informers.metadata(PODS) is full
    slim = informers.metadata(NAMESPACES)
    assert informers.metadata(NAMESPACES) is slim
    task = asyncio.create_task(informers.run())
    await asyncio.wait_for(informers.wait_synced(), 60)
    namespace = slim.get("ns")
    assert set(namespace) == {"apiVersion", "kind", "metadata"}
    assert namespace["metadata"]["uid"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
