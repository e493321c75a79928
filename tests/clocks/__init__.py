"""Clocks: synthetic stamps with a known truth (no sockets), and what the product makes of them."""
