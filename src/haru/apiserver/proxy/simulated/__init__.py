"""`exec` and `attach` of simulated containers: the API server answers from their scripts, as there is no kubelet."""
