"""From a snapshot to what a page shows, as plain values."""
