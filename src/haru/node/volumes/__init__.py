"""What pods find in their volumes, and how it gets there."""
