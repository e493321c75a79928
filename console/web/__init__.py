"""The HTTP API (`gconsole api`): state of this console and actions on it, for scripts, dashboards and Prometheus.

`resources/` has a few typed records per subject and the operations that fill them from the store or call `Control`;
`operation` defines an operation, `app` routes them, `openapi` describes them, `exposition` formats Prometheus metrics.
Nothing here uses SSH, and nothing here keeps a state of its own. `terminal/` is `gconsole serve`.
"""
