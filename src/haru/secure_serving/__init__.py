"""Serve HTTPS with delegated authentication and authorization: what the node agent and other components share.

`listener.py` is TLS with certificates that are read again when they change; `identity.py` asks TokenReview whose a
token is; `authorization.py` asks SubjectAccessReview what a user may do; `component.py` puts health and metrics of a
component behind them. Source: SecureServingOptions, DelegatingAuthenticationOptions and
DelegatingAuthorizationOptions of kube-scheduler and the kubelet, as behaviour.
"""
