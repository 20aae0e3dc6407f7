"""A cluster in a pytest fixture: API server, scheduler, controllers and simulated nodes, fresh for each test.

For people who test operators and manifests: no Docker, no Go, no binaries to download. `pip install 'haru[testing]'`
brings pytest and the plug-in; a test asks for `haru_cluster` and gets a kubeconfig, and helpers that apply, read and
wait.
"""

from haru.testing.cluster import Cluster
from haru.testing.local import LocalCluster
from haru.testing.process import ProcessCluster
from haru.testing.template import Template
from haru.testing.waiting import WaitTimeoutError

__all__ = ["Cluster", "LocalCluster", "ProcessCluster", "Template", "WaitTimeoutError"]
