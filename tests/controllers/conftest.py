from controller_cluster import cluster

__all__ = ["cluster"]
