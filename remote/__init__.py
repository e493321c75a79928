"""The agent: what runs on a node. Python 3.6 and newer, the standard library, and what the bundle brought.

Nothing here may import the console, and nothing here writes anywhere but to its channel and its cache folder.
"""
