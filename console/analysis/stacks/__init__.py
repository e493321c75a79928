"""Stacks of many ranks: frames and their classes, threads, and the tree that groups ranks by place."""
