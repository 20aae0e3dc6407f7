"""Which of several allocations is better: prioritized alternatives and fragmentation."""
