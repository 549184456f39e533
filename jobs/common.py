"""What every job's command line shares."""

from __future__ import annotations

from pipeline import config


def wants_help(argv: list[str]) -> bool:
    """Whether the words ask for help."""
    return bool({"-h", "--help"} & set(argv))


def help_text(usage: str, name: str = "config") -> str:
    """A usage line, the groups with their choices, and every key with its default."""
    return f"usage: {usage}\n\n{config.describe(name)}"
