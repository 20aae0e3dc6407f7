"""What pods and the node use."""
