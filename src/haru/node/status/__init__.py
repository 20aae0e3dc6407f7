"""The status of a pod, and how it is written to the API."""
