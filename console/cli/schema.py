"""`gconsole schema`: JSON schema of the record types."""

from __future__ import annotations

import click

from ..text.sanitize import pretty


@click.command()
@click.option("--kind", metavar="KIND", help="Only this record kind.")
def schema(kind: str | None) -> int:
    """Print the JSON schema of all record types, the report, exported sessions, and `gconsole topo`."""
    import msgspec

    from ..records import KINDS
    from ..report import Report
    from ..session.export.document import SessionDocument
    from ..topology.json_document import TopologyDocument

    if kind is not None and kind not in KINDS:
        raise click.UsageError(f"unknown record kind: {kind}; use {', '.join(sorted(KINDS))}")
    types = [KINDS[kind]] if kind else [*KINDS.values(), Report, TopologyDocument, SessionDocument]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", "anyOf": list(schemas), "$defs": components}
    click.echo(pretty(document))
    return 0
