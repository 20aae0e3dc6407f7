"""Install Haru on a cluster: the manifests of `deploy/`, what is checked before, server-side apply, and removal.

`manifests.py` reads the same files as `kubectl apply -k`; `checks.py` asks the cluster; `apply.py` writes.
"""
