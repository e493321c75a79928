"""hosts.toml, environment and flags as one checked `Config`; editing of hosts.toml.

`sections` declares the keys, `schema` derives the key table, `document` reads one file, `load` merges all sources.
ClusterShell, tomli and tomlkit are imported lazily.
"""

from .load import is_file_target, load, target_key
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
    "target_key",
]
