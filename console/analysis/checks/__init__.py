"""Checks of a whole node, passive and without preparation: one table, and its evaluation on the facts of one node."""
