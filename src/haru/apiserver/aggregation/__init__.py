"""The aggregation layer: APIServices say who serves each group version.

`local` keeps those of what this server serves itself. Of the others, `availability` says whether the extension API
server behind a Service can be used, and `remote` keeps that true; `client` leads there, `proxy` takes requests to it
and its answers back. `expected` has requests wait for those that are about to start. `authorities` tells extension API
servers by what they know this one, `changes` when something may have to be looked at anew, and `server` puts the parts
together.
Source: kube-aggregator of Kubernetes 1.36, as behaviour.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
