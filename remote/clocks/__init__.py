"""Probes between nodes: packets, who may send them and how many, what is kept of them, and the thread that does it.

UDP only, and only between peers that the console has named, for as long as it has asked. Nothing here estimates: what
leaves is bins of extremes, and the console draws lines through them.
"""
