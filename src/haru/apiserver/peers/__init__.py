"""API servers of different versions on one etcd: each forwards what only another one serves, and tells of it.

`identity` says who is there (Leases that everybody can read), `places` where (keys that no client can write), `asking`
and `known` what the others serve, `routes` which requests go to one of them, `passing` takes them there, `arriving`
believes at the other end who has asked. `server` puts the parts together.
Source: the mixed version proxy (KEP 4020) and API server identity (KEP 1965) of Kubernetes 1.36, as behaviour.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
