"""The `kgqa` command: finds the command that was named, runs it, and prints what it returns."""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from io import TextIOWrapper
from types import FrameType

from pipeline.cli import hydra_flags
from pipeline.cli.commands import COMMANDS, SECTIONS, Command, named
from pipeline.errors import (
    MISTAKE,
    OUTAGE,
    Outage,
    RequestRefused,
    RunStopped,
    ServiceError,
    Unanswerable,
    UserError,
    single_errors,
)
from pipeline.extras import require
from pipeline.renames import current_command, current_override
from pipeline.suggestions import did_you_mean
from pipeline.text import printable

_HELP = {"-h", "--help"}
_COMPLETION = 'eval "$(kgqa --shell-completion install=bash)" lets the Tab key of bash complete commands and keys.'
_EXTRAS_OF_WORDS = {"s3://": "s3", "hydra/sweeper=optuna": "optuna"}
"""The extra that each word of a command needs, by a part of the word."""
_RESOURCES = {
    errno.ENOSPC: "the disk of standard output, or of a file that this command writes, is full",
    errno.EMFILE: "raise the limit of open files (ulimit -n), or set a smaller engine.concurrency",
    errno.ENFILE: "this machine has no more open files",
    errno.ENOMEM: "out of memory",
}
"""What the user can do about an error of the operating system that names no file."""
_FIRST_WORDS = list(dict.fromkeys(name.split()[0] for name in COMMANDS))


def main(argv: list[str] | None = None) -> int:
    """Run one command. A user's mistake is one sentence on stderr and exit code 2; Ctrl-C is 130, SIGTERM is 143."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a letter that the terminal cannot show must not end a command
            stream.reconfigure(errors="replace")
    if logging.lastResort:  # writes warnings, which may quote a server, to the terminal
        logging.lastResort.setFormatter(_PrintableLines())
    return guard(_main, sys.argv[1:] if argv is None else argv)


def _main(argv: list[str]) -> int:
    """Print help or the version, or run the command that the words name."""
    words = _with_current_names(argv)
    if words[:1] == ["help"] and len(words) > 1:
        words = [*words[1:], "--help"]
    if not words or words[0] in {*_HELP, "help"}:
        print(_overview())
        return 0
    if words[0] == "--version":
        print(version("kgqa-pipeline"))
        return 0
    if words[0] in hydra_flags.COMPLETION:
        return hydra_flags.complete(words[1:])
    return _run(words)


class _PrintableLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def guard(job: Callable[[list[str]], int], words: list[str]) -> int:
    """Run a job. Turn errors that the user can fix, Ctrl-C and SIGTERM into one sentence and an exit code."""
    terminated = threading.Event()
    try:
        with _sigterm_as_ctrl_c(terminated):
            code = job(words)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of our output has closed it, as in `kgqa evaluate --help | head`
        _discard_output()
        return 141
    except Exception as error:
        sentence = _user_message(error)
        if sentence is None:
            raise
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            _discard_output()
        # A value of a file, which may have line breaks, must not look like another line of ours.
        print(f"kgqa: {printable(' '.join(sentence.splitlines()))}", file=sys.stderr)
        return OUTAGE if _is_outage(error) else MISTAKE
    except KeyboardInterrupt as stopped:
        print(f"kgqa: {_stopped(words, has_begun=isinstance(stopped, RunStopped))}", file=sys.stderr)
        return 143 if terminated.is_set() else 130


def _discard_output() -> None:
    """Send what Python writes to standard output at its exit to nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _sigterm_as_ctrl_c(terminated: threading.Event) -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C, which closes everything in order, and set `terminated`."""
    if threading.current_thread() is not threading.main_thread():  # where no handler can be set
        yield
        return

    def terminate(number: int, frame: FrameType | None) -> None:
        terminated.set()
        on_ctrl_c = signal.getsignal(signal.SIGINT)  # an event loop has its own
        if not callable(on_ctrl_c):  # a shell ignores Ctrl-C for what runs in the background
            raise KeyboardInterrupt
        on_ctrl_c(number, frame)

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _stopped(words: Sequence[str], *, has_begun: bool) -> str:
    """Say that a command was stopped, and how to continue it if that is possible.

    `has_begun` is whether its run has begun, and so has deleted the results that `run.restart=true` replaces.
    """
    name = named(words)
    if name is None or not COMMANDS[name].resumes:
        return "stopped"
    if not any(word.lower() == "run.restart=true" for word in words):
        return "stopped; run the same command again to continue"
    if not has_begun:
        return "stopped before the earlier results were deleted; run the same command again to replace them"
    return "stopped; run the same command again without run.restart=true to continue"


def _run(words: Sequence[str]) -> int:
    """Run the command that the first words name. Raises UserError for an unknown one."""
    name = named(words)
    if name is None:
        return _list_subcommands(words)
    rest, literal = _split_literal(words[len(name.split()) :])
    flags, rest = hydra_flags.take(rest, COMMANDS[name])
    if flags.hydra_help:
        print(hydra_flags.HELP)
        return 0
    name = _sweeping(name) if flags.multirun else name
    command = COMMANDS[name]
    if _HELP & set(rest):
        print(_help(name, command, rest))
        return 0
    _require_extras(name, command, rest)
    from pipeline import config  # help needs none of what these import
    from pipeline.cli.arguments import Arguments, name_repeated

    name_repeated(rest)
    as_json, rest = _take_json(rest) if command.prints_figures else (False, rest)
    table, rest = _take_table(rest) if command.writes_tables else (None, rest)
    arguments = Arguments.parse(rest, command.config_name or "config", literal)
    if command.words == "none":
        arguments = Arguments(arguments.config_name, (), [*rest, *literal])  # composing says what is wrong with a word
    if flags.cfg or flags.info:
        shown = {each: getattr(flags, each) for each in ("cfg", "package", "resolve", "info")}
        config.show(arguments.overrides, arguments.config_name, **shown)
        return 0
    if command.words == "required" and not arguments.words:
        raise UserError(f"name what to {command.verb}: {_usage(name, command)}")
    module, _, function = command.function.partition(":")
    output = getattr(import_module(f"pipeline.cli.{module}"), function)(arguments)
    if output is None:
        return 0
    try:
        if table:  # first, because whoever reads what is printed may stop reading
            output.write_tables(table)
    finally:
        output.print(as_json=as_json)
    return int(output.exit_code)


def _split_literal(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the words before `--`, and those after it, which are names even if they look like keys or flags."""
    end = list(words).index("--") if "--" in words else len(words)
    return words[:end], words[end + 1 :]


def _sweeping(name: str) -> str:
    """Return the command that runs several configurations. Raises UserError for a command that runs none."""
    if name not in ("evaluate", "sweep", "estimate"):
        raise UserError(f"kgqa {name} does not run several configurations: --multirun is for kgqa evaluate")
    return "sweep" if name == "evaluate" else name


def _require_extras(name: str, command: Command, words: Sequence[str]) -> None:
    """Raise UserError if an optional dependency is missing that the command needs for sure."""
    if command.extra:
        require(command.extra, f"kgqa {name}")
    for word in words:
        for part, extra in _EXTRAS_OF_WORDS.items():
            if part in word:
                require(extra, word)


def _take_json(words: Sequence[str]) -> tuple[bool, list[str]]:
    """Return whether `json=true` is among the words, and the other words. Raises UserError for another value."""
    given = [word for word in words if word.startswith("json=")]
    if wrong := [word for word in given if word not in {"json=true", "json=false"}]:
        raise UserError(f"{wrong[0]} is wrong: input should be true or false")
    return given[-1:] == ["json=true"], [word for word in words if word not in given]


def _take_table(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the file of `table=FILE`, and the other words. Raises UserError, before any work, for another ending."""
    from pipeline.export.table_files import check_table_file

    given = [word for word in words if word.startswith("table=")]
    files = [word.removeprefix("table=") for word in given]
    for file in files:
        check_table_file(file)
    return (files[-1] if files else None), [word for word in words if word not in given]


def _list_subcommands(words: Sequence[str]) -> int:
    """Print the commands that begin with the first word. Raises UserError when there is none, or for a wrong second."""
    first, *rest = words
    if first not in _FIRST_WORDS:
        raise UserError(
            f"there is no command '{first}'.{did_you_mean(first, _FIRST_WORDS)} Known: {', '.join(_FIRST_WORDS)}"
        )
    commands = {name: command for name, command in COMMANDS.items() if name.split()[0] == first}
    if rest and rest[0] not in _HELP:
        known = [name.split()[1] for name in commands]
        raise UserError(f"kgqa {first} has no '{rest[0]}'.{did_you_mean(rest[0], known)} It has {', '.join(known)}.")
    usages = "\n".join(f"usage: {_usage(name, command)}" for name, command in commands.items())
    print(f"{usages}\n\nkgqa {first} NAME --help lists the keys of each.")
    return 0


def _with_current_names(argv: list[str]) -> list[str]:
    """Translate the names of older versions, and report each one on stderr."""
    current, sentence = current_command(argv)
    command, literal = _split_literal(current)
    overrides = [current_override(word) for word in command]
    for message in filter(None, [sentence, *(message for _, message in overrides)]):
        print(f"kgqa: {printable(message)}", file=sys.stderr)
    return [*(word for word, _ in overrides), *(["--", *literal] if literal else [])]


def _user_message(error: Exception) -> str | None:
    """Return the message of an error that the user can fix (an argument, a server, a disk); None for a bug."""
    return next(filter(None, map(_message, single_errors(error))), None)


def _message(error: Exception) -> str | None:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.errno in _RESOURCES:
        return f"{error.strerror}: {_RESOURCES[error.errno]}"
    if isinstance(error, MemoryError):
        return "out of memory: run fewer questions at once (engine.concurrency), or fewer workers"
    if isinstance(error, ImportError) and "failed to map segment" in str(error):
        return f"out of memory: a library cannot be loaded ({error})"
    return str(error) if isinstance(error, (UserError, ServiceError)) else None


def _is_outage(error: Exception) -> bool:
    """Whether servers, workers or nodes that do not answer have stopped a command."""
    return any(
        isinstance(each, Outage | ServiceError) and not isinstance(each, RequestRefused | Unanswerable)
        for each in single_errors(error)
    )


def _usage(name: str, command: Command) -> str:
    return f"kgqa {name} {command.usage}"


def _overview() -> str:
    column = max(map(len, COMMANDS)) + 2
    lines = ["usage: kgqa COMMAND [group=choice] [key=value] …"]
    for section, commands in SECTIONS.items():
        lines += ["", f"{section}:", *(f"  {name:<{column}}{each.purpose}" for name, each in commands.items())]
    return "\n".join(
        [*lines, "", "kgqa COMMAND --help explains its keys. kgqa --version prints the version.", _COMPLETION]
    )


def _help(name: str, command: Command, words: Sequence[str]) -> str:
    lines = [f"usage: {_usage(name, command)}", "", f"{command.purpose[0].upper()}{command.purpose[1:]}."]
    if command.prints_figures:
        lines.append("json=true prints the figures as one JSON document instead of tables.")
    if command.writes_tables:
        lines.append("table=FILE also writes the tables, by the ending of the file: .csv, .md or .tex.")
    if command.config_name:
        lines.append("--cfg job prints the configuration instead; --config-dir FOLDER adds a folder of choices.")
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
