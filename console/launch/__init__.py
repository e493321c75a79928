"""Starting jobs on monitored nodes: request, node selection, plan, commands.

Planning is pure: node capacity and preflight results in, a plan or a refusal out; `Control` sends requests to nodes.
"""
