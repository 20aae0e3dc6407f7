"""What a node must satisfy (filters) and what makes it better (scores), for ordinary pods."""
