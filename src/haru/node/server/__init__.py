"""The kubelet API: who may ask this node what, its pods, logs, statistics, and ways into its containers."""
