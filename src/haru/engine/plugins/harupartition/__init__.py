"""Confine a scheduler to its partition of the cluster."""
