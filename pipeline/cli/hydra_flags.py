"""Flags of Hydra that `kgqa` takes with Hydra's own meaning: `--cfg job` prints the configuration, for example."""

from __future__ import annotations

import io
import os
import re
from argparse import ArgumentError, ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

from pipeline.cli.commands import COMMANDS, Command, named
from pipeline.errors import UserError

COMPLETION = {"--shell-completion", "-sc"}
"""The flag that installs the completion of words in a shell, and with which the shell asks for the words."""
HELP = """Flags of Hydra that kgqa takes, with Hydra's meaning:
  --cfg, -c job|hydra|all   print the configuration instead of running it
  --package, -p PACKAGE     print only this part of it
  --resolve                 print it with its interpolations resolved
  --info, -i [WHAT]         print how the configuration was found: config, defaults, defaults-tree, plugins, searchpath
  --multirun, -m            run every combination of the values, as kgqa sweep does
  --config-dir, -cd FOLDER  search this folder for choices, too
  --shell-completion, -sc   install=SHELL, uninstall=SHELL (after kgqa, without a command)
Overrides are those of Hydra: key=value, +key=value, ~key, group=choice. kgqa COMMAND --help explains every key."""
"""What `--hydra-help` prints."""
_SEARCH_PATH = "hydra.searchpath="


def take(words: Sequence[str], command: Command) -> tuple[Namespace, list[str]]:
    """Return the flags of a command (`cfg`, `info`, `multirun`, `package`, `resolve`), and its other words.

    The folder of `--config-dir` becomes part of `hydra.searchpath`. Raises UserError for a wrong or unknown flag.
    """
    parser = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--cfg", "-c", choices=("job", "hydra", "all"))
    about = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
    instead.add_argument("--info", "-i", const="all", nargs="?", choices=about)
    instead.add_argument("--multirun", "-m", action="store_true")
    parser.add_argument("--resolve", action="store_true")
    parser.add_argument("--package", "-p")
    parser.add_argument("--config-dir", "-cd", type=Path)
    parser.add_argument("--config-name", "-cn")
    parser.add_argument("--hydra-help", action="store_true")
    try:
        flags, rest = parser.parse_known_args(words)
    except ArgumentError as error:
        raise UserError(str(error)) from None
    if (flags.resolve or flags.package) and not flags.cfg:
        raise UserError("--resolve and --package say how --cfg prints the configuration: add --cfg job")
    if flags.config_name:
        preset = Path(flags.config_name).stem
        raise UserError(
            f"--config-name={flags.config_name}: a command has one configuration file. Write your keys into a preset, "
            f"experiment/{preset}.yaml in ./conf or in the folder of --config-dir, with the first line "
            f"`# @package _global_`, and give experiment={preset}"
        )
    if command.config_name is None and (flags.cfg or flags.info):
        raise UserError("this command has no configuration: --cfg and --info have nothing to print")
    if flags.config_dir:
        rest = _with_folder(rest, flags.config_dir)
    for number, word in enumerate(rest):
        if re.match("--?[a-z]", word) and word not in ("-h", "--help"):
            from pipeline import config

            keys = config.keys_of(command.config_name) if command.config_name else {}
            raise UserError(config.wrong_flag(word, rest[number + 1 :], {**command.output_keys, **keys}))
    return flags, rest


def _with_folder(words: Sequence[str], folder: Path) -> list[str]:
    """Add a folder to `hydra.searchpath`."""
    if not folder.is_dir():
        raise UserError(f"--config-dir={folder} is not a folder")
    given = [word.removeprefix(_SEARCH_PATH).strip("[]") for word in words if word.startswith(_SEARCH_PATH)]
    others = [word for word in words if not word.startswith(_SEARCH_PATH)]
    folders = ",".join([*given, f"'file://{folder.absolute()}'"])
    return [*others, f"{_SEARCH_PATH}[{folders}]"]


def complete(words: Sequence[str]) -> int:
    """Do what Hydra's `--shell-completion` does: print the script of a shell, or the words that may come next.

    `words` are `install=SHELL`, `uninstall=SHELL` or `query=SHELL`. Raises UserError for other ones.
    """
    from pipeline import config

    querying = any(word.startswith("query=") for word in words)
    command = _command_of_query() if querying else None
    name = (command and command.config_name) if querying else "config"
    try:
        with config.running_hydra() as running:
            if name:
                said = io.StringIO()
                with redirect_stdout(said):
                    running.shell_completion(name, list(words))
                print(_taken(said.getvalue(), command) if command else said.getvalue())
    except config.HYDRA_ERRORS as error:
        if not querying:  # a shell shows what a query prints below the line that the user types
            raise UserError(f"--shell-completion: {' '.join(str(error).split())}") from None
    return 0


def _taken(offers: str, command: Command) -> str:
    """Return the offers of Hydra that a command takes, for Hydra offers all groups; and the keys of its output.

    They are separated as Hydra does it for the shell: by spaces, or one on a line.
    """
    from pipeline import config

    known = {re.split(r"[./]", key)[0] for key in config.keys_of(command.config_name or "config")}
    taken = [offer for offer in offers.split() if re.split(r"[./=]", offer)[0] in {*known, "hydra"}]
    last = os.environ["COMP_LINE"].split(" ")[-1]
    outputs = (f"{key}={'true' if value is False else ''}" for key, value in command.output_keys.items())
    taken += [word for word in outputs if word.startswith(last)]
    return ("\n" if "\n" in offers.strip() else " ").join(taken)


def _command_of_query() -> Command | None:
    """Return the command in `COMP_LINE`, and leave there the words that Hydra can read.

    While the command is not complete, print what its next word may be, and return None. Return None for a flag, too.
    """
    *words, last = os.environ.get("COMP_LINE", "").split(" ")[1:] or [""]
    words = list(filter(None, words))
    name = named(words)
    if name is None:
        followed = (each.split() for each in COMMANDS if each.split()[: len(words)] == words)
        print("\n".join(dict.fromkeys(each[len(words)] for each in followed)))
        return None
    command = COMMANDS[name]
    overrides = [word for word in words if "=" in word and word.partition("=")[0] not in command.output_keys]
    os.environ["COMP_LINE"] = " ".join(["kgqa", *overrides, last])
    return None if last.startswith("-") else command
