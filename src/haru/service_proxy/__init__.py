"""The data path of Services on one node, by nftables."""
