"""The aggregation layer: APIServices say who serves each group version.

`local` keeps those of what this server serves itself, `changes` tells when something may have to be looked at anew,
`server` puts the parts together.
Source: kube-aggregator of Kubernetes 1.36, as behaviour.
"""

from haru.apiserver.aggregation.server import Aggregator

__all__ = ["Aggregator"]
