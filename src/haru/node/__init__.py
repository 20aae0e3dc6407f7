"""The node agent: turns a Linux machine into a node of a cluster."""
