"""The Kubernetes API over a store: discovery, REST, watch, admission, authentication and authorization."""
