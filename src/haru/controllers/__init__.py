"""The controllers: each brings one part of what is into line with what is wanted, over the API only."""
