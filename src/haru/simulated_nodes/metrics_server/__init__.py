"""`metrics.k8s.io` for simulated pods and nodes, as metrics-server serves it: `kubectl top` and autoscalers read it."""
