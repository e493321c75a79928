"""Topology snapshots from the store, with parallel groups, and their output as text, JSON, Graphviz and SVG."""
