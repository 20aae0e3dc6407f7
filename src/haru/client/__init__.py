"""A Kubernetes API server as its components see it: requests, watches, informers, leases and events.

Everything above talks to the API server through this room only, whether the server runs in this
process or far away.
"""
