"""Typed configuration: YAML and dotted overrides become nested dataclasses, and back. Knows no component."""

from regard.config.options import Presets, at_least, below_one, describe_options, field_values, option
from regard.config.parse import (
    changed_keys,
    describe_changes,
    dump_yaml,
    lookup,
    nearest,
    parse_config,
    plugins_of,
    to_choice,
    to_plain,
)
from regard.config.plugins import allow_plugins, load_allowed_plugins, load_plugins, require_plugins
from regard.config.registry import Choice, choice, choices, is_slot
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
