"""Clock probes between nodes (packets, rate limits, delay bins, the probing thread), clock reads and time services.

UDP only, between peers that the console names, for a limited time. Estimation happens in the console, from the bins.
"""
