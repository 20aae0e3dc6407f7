"""A cluster of processes that a run owns and breaks: etcd, API server, controllers, fleet, and two schedulers."""
