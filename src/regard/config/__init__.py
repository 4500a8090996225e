"""Typed configuration: YAML and dotted overrides become nested dataclasses, and back. Knows no component."""

from regard.config.options import Presets, at_least, below_one, describe_options, kinds, mechanism, option
from regard.config.parse import (
    changed_keys,
    describe_changes,
    dump_yaml,
    lookup,
    nearest,
    parse_choice,
    parse_config,
    to_plain,
)
from regard.config.tree import (
    COMMAND_LINE,
    Node,
    apply_overrides,
    fill_missing,
    parse_yaml,
    read_yaml,
    rename_keys,
    rename_override,
    to_node,
    with_defaults,
)
