"""Nodes reached through gateways: one connection per gateway, which runs the user's own ssh to each node."""
