"""The function libraries. Each module declares one `Library`; environments choose among them."""
