"""Names of nodes: `node[001-064,071]`, `@group`, `node[1-9]!node3`, `user@host:port`, expanded and folded.

The syntax is ClusterShell's NodeSet, which also expands groups and set operations. Plain lists of names and ranges are
expanded here, in their order; a test compares the results.
"""

from __future__ import annotations

import collections
import ipaddress
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from .nodeset_parser import IPV6_HINT, MAX_NAMES, BadNodeSet, quoted, shortened, terms
from .schema import nearest

_HOST = re.compile(r"(?:([A-Za-z0-9_][A-Za-z0-9_.-]*)@)?([A-Za-z0-9_][A-Za-z0-9_.-]*)(?::([1-9][0-9]{0,4}))?")
#: Names that all operands together may expand to, with excluded ones and groups.
_MAX_EXPANDED = 4 * MAX_NAMES


class NodeAddress(msgspec.Struct, frozen=True):
    """One member of a node set."""

    name: str  # "gpu-a", or "gpu-a:2222" if written with a port
    text: str  # as written: "ops@gpu-a:2222"
    user: str | None = None
    port: int | None = None


def expand(text: str) -> tuple[NodeAddress, ...]:
    """The members of a node set, 1 to MAX_NAMES, counted before they are expanded.

    Raises BadNodeSet: empty, too many, an invalid range or name, an unknown group, a duplicate.
    """
    operands = terms(text)
    names: list[str]
    if all(term.is_plain for term in operands):
        if sum(term.count for term in operands) > MAX_NAMES:
            raise BadNodeSet(f"{quoted(text)} names more than {MAX_NAMES:,} nodes")
        names = [name for term in operands for name in term.names()]
    else:
        if sum(term.count for term in operands) > _MAX_EXPANDED:
            raise BadNodeSet(f"{quoted(text)} names too many nodes (limit {MAX_NAMES:,})")
        names = _by_clustershell(text)
    hosts = tuple(_host(name) for name in names)
    repeated = [name for name, times in collections.Counter(host.name for host in hosts).items() if times > 1]
    if repeated:
        raise BadNodeSet(f"{shortened(fold(repeated))} occurs twice in {quoted(text)}")
    return hosts


def fold(names: Iterable[str]) -> str:
    """The names folded, node[001-064,071]; a plain list if a name cannot be in a node set."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    names = list(names)
    try:
        folded = str(NodeSet.fromlist(names, resolver=RESOLVER_NOGROUP))
        terms(folded)
    except (NodeSetException, BadNodeSet):
        return ",".join(names)
    return folded


def _host(text: str) -> NodeAddress:
    """Read `[user@]host[:port]`. Raises BadNodeSet."""
    match = _HOST.fullmatch(text)
    if match is None:
        if not _is_ipv6(text):
            raise BadNodeSet(f"{quoted(text)} is not a valid [user@]host[:port]")
        if text.startswith(":"):  # a name begins with a letter, a digit or "_"
            raise BadNodeSet(f"{quoted(text)}: {IPV6_HINT}")
        return NodeAddress(text, text)
    user, host, port = match.groups()
    if len(host) > 253:
        raise BadNodeSet(f"{quoted(host)} is longer than a host name can be")
    if port is not None and int(port) > 65535:
        raise BadNodeSet(f"the port of {quoted(text)} must be 1 to 65535")
    return NodeAddress(f"{host}:{port}" if port else host, text, user, int(port) if port else None)


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _by_clustershell(text: str) -> list[str]:
    from ClusterShell.NodeSet import NodeSet, NodeSetException
    from ClusterShell.NodeUtils import GroupResolverError, GroupSourceError

    groups = _Groups()
    try:
        names = list(NodeSet(text, resolver=groups))
    except GroupSourceError as error:
        raise BadNodeSet(f"{quoted(text)}: the group source failed ({error.args[0]})") from error
    except GroupResolverError as error:
        raise BadNodeSet(f"{quoted(text)}: ClusterShell's groups cannot be used ({error})") from error
    except NodeSetException as error:
        why = "a group contains itself" if isinstance(error.__context__, RecursionError) else str(error)
        raise BadNodeSet(f"{quoted(text)} cannot be read ({why})") from error
    if not names:
        raise BadNodeSet(f"{quoted(text)} names no node")
    if len(names) > MAX_NAMES:
        raise BadNodeSet(f"{quoted(text)} names {len(names):,} nodes, more than {MAX_NAMES:,}")
    return names


class _Groups:
    """ClusterShell's groups; the size of each is checked before ClusterShell expands it."""

    def __init__(self) -> None:
        from ClusterShell.NodeSet import std_group_resolver

        self._resolver: Any = std_group_resolver()
        self._expanded = 0

    def group_nodes(self, group: str, namespace: str | None = None) -> list[str]:
        nodes = self._checked(self._resolver.group_nodes(group, namespace), f"@{group}")
        if not nodes:
            self._refuse_unknown(group, namespace)
        return nodes

    def all_nodes(self, namespace: str | None = None) -> list[str]:
        return self._checked(self._resolver.all_nodes(namespace), "@*")

    def grouplist(self, namespace: str | None = None) -> list[str]:
        return list(self._resolver.grouplist(namespace))

    def _checked(self, texts: Iterable[str], group: str) -> list[str]:
        texts = [text for text in texts if text.strip()]
        for text in texts:
            self._expanded += sum(term.count for term in terms(text))
            if self._expanded > _MAX_EXPANDED:
                raise BadNodeSet(f"{group} names too many nodes (limit {MAX_NAMES:,})")
        return texts

    def _refuse_unknown(self, group: str, namespace: str | None) -> None:
        """Raise BadNodeSet unless the source lists the group: an empty group is valid, a mistyped one is not."""
        from ClusterShell.NodeUtils import GroupSourceNoUpcall

        try:
            groups = self.grouplist(namespace)
        except GroupSourceNoUpcall:
            groups = []
        if group not in groups:
            near = nearest(group, groups)
            raise BadNodeSet(f"unknown group @{group}", f"@{near}" if near else "")
