"""Starting jobs on the nodes that are watched: what a person asks for, which nodes can do it, how it is put there.

Planning is pure: facts and answers in, a plan or a refusal out. Nothing here talks to a node; that is `Control`.
"""
