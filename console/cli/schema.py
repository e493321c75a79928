"""`gconsole schema`: the data dictionary, from the record types themselves."""

from __future__ import annotations

import click

from ..text.json import pretty


@click.command()
@click.option("--kind", metavar="KIND", help="Only this kind of record.")
def schema(kind: str | None) -> int:
    """Print the JSON schema of every record, of the report, of a session in one file, and of `gconsole topo`."""
    import msgspec

    from ..records import KINDS
    from ..report import Report
    from ..session.export.document import SessionDocument
    from ..topology.schema import TopologyDocument

    if kind is not None and kind not in KINDS:
        raise click.UsageError(f"no such kind: {kind}; there are {', '.join(sorted(KINDS))}")
    types = [KINDS[kind]] if kind else [*KINDS.values(), Report, TopologyDocument, SessionDocument]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", "anyOf": list(schemas), "$defs": components}
    click.echo(pretty(document))
    return 0
