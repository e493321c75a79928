"""hosts.toml, the environment and the flags, read into one typed, checked `Config`; and the editing of hosts.toml.

Reading: `model` (what there is to set), `schema` (the same as a table), `lines` (where a key stands in a file),
`document` (one file, strictly), `nodetext` and `nodeset` (names), `load` (all of it together). Showing: `show`.
Writing: `starter`, `edit`, `write`.

Importing this package costs a few milliseconds; ClusterShell, tomli and tomlkit are imported where they are first
needed. Nothing here opens a connection, and nothing here knows who will use the result.
"""

from .load import is_file_target, load
from .model import Config, ConfigError, NodeConfig
from .sections import AgentConfig, ConsoleConfig, SshConfig

__all__ = [
    "AgentConfig",
    "Config",
    "ConfigError",
    "ConsoleConfig",
    "NodeConfig",
    "SshConfig",
    "is_file_target",
    "load",
]
