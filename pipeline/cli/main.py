"""The `kgqa` command: finds the command that was named, runs it, and prints what it returns."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version

from pipeline.cli.commands import COMMANDS, SECTIONS, Command
from pipeline.errors import ServiceError, UserError, nearest
from pipeline.renames import current_command, current_override
from pipeline.text import printable

_HELP = {"-h", "--help"}
_FIRST_WORDS = list(dict.fromkeys(name.split()[0] for name in COMMANDS))


def main(argv: list[str] | None = None) -> int:
    """Run one command. A user's mistake is one sentence on stderr and exit code 2; Ctrl-C is exit code 130."""
    if logging.lastResort:  # writes warnings, which may quote a server, to the terminal
        logging.lastResort.setFormatter(_PrintableLines())
    words = _with_current_names(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in {*_HELP, "help"}:
        print(_overview())
        return 0
    if words[0] == "--version":
        print(version("kgqa-pipeline"))
        return 0
    return guard(_run, words)


class _PrintableLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def guard(job: Callable[[list[str]], int], words: list[str]) -> int:
    """Run a job. Turn errors that the user can fix, and Ctrl-C, into one sentence and an exit code."""
    try:
        return job(words)
    except BrokenPipeError:  # the reader of our output has closed it, as in `kgqa evaluate --help | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python flushes at exit
        return 141
    except Exception as error:
        sentence = _user_message(error)
        if sentence is None:
            raise
        print(f"kgqa: {printable(sentence)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("kgqa: stopped; run the same command again to continue", file=sys.stderr)
        return 130


def _run(words: Sequence[str]) -> int:
    """Run the command that the first words name. Raises UserError for an unknown one."""
    name = next((name for name in COMMANDS if words[: len(name.split())] == name.split()), None)
    if name is None:
        return _list_subcommands(words)
    command, rest = COMMANDS[name], words[len(name.split()) :]
    if _HELP & set(rest) or (command.words == "required" and not rest):
        print(_help(name, command, rest))
        return 0
    from pipeline.cli.common import Arguments  # help needs none of what this imports

    as_json, rest = _take_json(rest) if command.prints_figures else (False, rest)
    arguments = Arguments.parse(rest, command.config_name or "config")
    if command.words == "none":
        arguments = Arguments(arguments.config_name, (), rest)  # composing says what is wrong with a word
    if command.words == "required" and not arguments.words:
        raise UserError(f"name what to read: {_usage(name, command)}")
    module, _, function = command.function.partition(":")
    output = getattr(import_module(f"pipeline.cli.{module}"), function)(arguments)
    if output is None:
        return 0
    output.print(as_json=as_json)
    return int(output.exit_code)


def _take_json(words: Sequence[str]) -> tuple[bool, list[str]]:
    """Return whether `json=true` is among the words, and the other words. Raises UserError for another value."""
    given = [word for word in words if word.startswith("json=")]
    if wrong := [word for word in given if word not in {"json=true", "json=false"}]:
        raise UserError(f"{wrong[0]} is wrong: input should be true or false")
    return given[-1:] == ["json=true"], [word for word in words if word not in given]


def _list_subcommands(words: Sequence[str]) -> int:
    """Print the commands that begin with the first word. Raises UserError when there is none, or for a wrong second."""
    first, *rest = words
    if first not in _FIRST_WORDS:
        raise UserError(
            f"there is no command '{first}'.{nearest(first, _FIRST_WORDS)} Known: {', '.join(_FIRST_WORDS)}"
        )
    commands = {name: command for name, command in COMMANDS.items() if name.split()[0] == first}
    if rest and rest[0] not in _HELP:
        known = [name.split()[1] for name in commands]
        raise UserError(f"kgqa {first} has no '{rest[0]}'.{nearest(rest[0], known)} It has {', '.join(known)}.")
    usages = "\n".join(f"usage: {_usage(name, command)}" for name, command in commands.items())
    print(f"{usages}\n\nkgqa {first} NAME --help lists the keys of each.")
    return 0


def _with_current_names(argv: list[str]) -> list[str]:
    """Translate the names of older versions, and report each one on stderr."""
    command, sentence = current_command(argv)
    overrides = [current_override(word) for word in command]
    for message in filter(None, [sentence, *(message for _, message in overrides)]):
        print(f"kgqa: {printable(message)}", file=sys.stderr)
    return [word for word, _ in overrides]


def _user_message(error: Exception) -> str | None:
    """Return the message of an error that the user can fix (an argument, a server, a disk); None for a bug."""
    if isinstance(error, ExceptionGroup):
        return next(filter(None, map(_user_message, error.exceptions)), None)
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error) if isinstance(error, (UserError, ServiceError)) else None


def _usage(name: str, command: Command) -> str:
    return f"kgqa {name} {command.usage}"


def _overview() -> str:
    column = max(map(len, COMMANDS)) + 2
    lines = ["usage: kgqa COMMAND [group=choice] [key=value] …"]
    for section, commands in SECTIONS.items():
        lines += ["", f"{section}:", *(f"  {name:<{column}}{each.purpose}" for name, each in commands.items())]
    return "\n".join([*lines, "", "kgqa COMMAND --help explains its keys. kgqa --version prints the version."])


def _help(name: str, command: Command, words: Sequence[str]) -> str:
    lines = [f"usage: {_usage(name, command)}", "", f"{command.purpose[0].upper()}{command.purpose[1:]}."]
    if command.prints_figures:
        lines.append("json=true prints the figures as one JSON document instead of tables.")
    return "\n".join([*lines, "", _details(command, words)])


def _details(command: Command, words: Sequence[str]) -> str:
    """Describe the keys of a command under the overrides given; for one without keys, what its words may be."""
    if command.config_name is None:
        return str(import_module(f"pipeline.cli.{command.function.partition(':')[0]}").details())
    from pipeline import config

    overrides = [word for word in words if "=" in word and not word.startswith("json=")]
    single = [word for word in overrides if "," not in word or set("[{(") & set(word)]  # no lists of a sweep
    return config.describe(single, name=command.config_name)


if __name__ == "__main__":
    sys.exit(main())
