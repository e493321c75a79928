"""Connections to the agents on all nodes: links, reconnects, requests, quotas, deployment, clock probes."""
