"""What this console knows and can do, over HTTP: for scripts, dashboards and Prometheus.

One file a resource in `resources/`, each a few typed records and the functions that fill them from the store or ask
`Control`; `operation` says what an operation is, `app` serves the list of them, `openapi` describes the same list. What
Prometheus reads is in `metrics/`. Nothing here knows SSH, and nothing here keeps a state of its own.
"""
