"""Built-in themes, one TOML file each."""
