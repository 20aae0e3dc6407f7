"""Simulated kubelets: nodes that are kept alive and pods that run on them without containers."""
