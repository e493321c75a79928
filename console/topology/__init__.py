"""The topology of what the store knows, and how it leaves the console: as text, JSON, Graphviz and SVG.

`gather` makes a `Fleet` of the store, `fold` keeps one while records arrive, `parallel` lays the jobs' groups over it;
`text`, `document`, `dot` and `svg` draw one. What is related to what is decided
in `analysis/`, not here.
"""
