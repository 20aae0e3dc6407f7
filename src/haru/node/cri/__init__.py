"""The Container Runtime Interface, `runtime.v1`: messages, a client of it, lists that have no limit."""
