"""The agent process: bootstrap, cache, requests, outbox, wire, lingering."""
