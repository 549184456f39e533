"""Generate the reference pages of the documentation site from the commands and the configuration files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import mkdocs_gen_files

from pipeline.cli.commands import SECTIONS
from pipeline.config.key_docs import ConfigFile, KeyDoc, read_file, read_group
from pipeline.papers.comparison_systems import ComparisonSystem, comparison_systems, why_not_run
from pipeline.papers.published import Figure, published_figures
from pipeline.papers.unprinted import UnprintedRow, unprinted_tables

CONF = Path(__file__).resolve().parents[1] / "conf"

FLAGS = """\
## Flags

`kgqa COMMAND` takes these flags of [Hydra](https://hydra.cc), with Hydra's meaning:

| flag | meaning |
| --- | --- |
| `--cfg job` | print the configuration that the other words describe, and do nothing else; also `hydra` or `all` |
| `--resolve` | with `--cfg`: replace each `${…}` by its value |
| `--package SECTION` | with `--cfg`: print this section only |
| `--info` | print where the configuration comes from; also `--info defaults`, `--info searchpath` and others |
| `--config-dir FOLDER` | add a folder with choices of your own, as `hydra.searchpath` does |
| `--multirun`, `-m` | `kgqa evaluate -m` is `kgqa sweep` |

`kgqa --shell-completion install=bash` prints a script by which the Tab key completes commands, keys and choices.
`eval "$(kgqa --shell-completion install=bash)"` runs it; add this line to `~/.bashrc` to run it in every shell. There
are scripts for `fish` and `zsh`, too: Hydra's documentation says how these shells load them.
"""


PUBLISHED = """\
Every table and figure of the four papers and of PoG, RoG and DoG, row by row, with the command that runs the row, or
the reason why none does. The command also needs a model and the dataset that stands beside the published number, such
as `dataset=webqsp dataset.path=FOLDER llm=endpoint`; SRP also needs `retrieval.reference_base=FILE`.
[`kgqa reproduce`](../how-to/reproduce-the-papers.md) runs all rows with a preset. ≈ marks numbers that were read off a
plot. [The specification](../specification.md) (§11) tells where the numbers come from.
"""


SYSTEMS = """\
The systems with which the papers compare themselves, by the names in their tables: what each one is, and which preset
runs it. Where none does, the tables of `kgqa reproduce` print the reason in place of a score. Methods that execute
logical forms are left out because the interface to the graph has no free queries; networks of their own would each need
their own training code.
"""


def commands_page() -> Iterator[str]:
    """Yield the lines of the page that lists all commands with the keys of their own."""
    yield "# Commands\n"
    yield "`kgqa COMMAND --help` prints the keys of a command. Of the groups of a run, it prints the keys of those that"
    yield "are named: `kgqa evaluate llm=endpoint --help`. `json=true` prints the figures as one JSON document.\n"
    yield FLAGS
    for section, commands in SECTIONS.items():
        yield f"\n## {section}\n"
        for name, command in commands.items():
            yield f"\n### kgqa {name}\n\n{command.purpose[0].upper()}{command.purpose[1:]}.\n"
            yield f"```text\nkgqa {name} {command.usage}\n```\n"
            if command.config_name == "config":
                yield "Its keys are those of the [configuration of a run](configuration.md).\n"
            elif command.config_name and (file := CONF / f"{command.config_name}.yaml").is_file():
                yield from _table(read_file(file).keys)


def configuration_page() -> Iterator[str]:
    """Yield the lines of the page that explains every key of a run."""
    yield "# Configuration\n"
    yield "Each group has choices, such as `kg=sparql`. The keys of a choice are changed as in `kg.endpoints=[…]`.\n"
    yield from _table(read_file(CONF / "config.yaml").keys)
    for folder in sorted(path for path in CONF.rglob("*") if path.is_dir()):
        group = str(folder.relative_to(CONF))
        yield f"\n## {group}\n"
        for choice, file in read_group([CONF], group).items():
            yield from _section(f"{group}={choice}", file)


def published_page() -> Iterator[str]:
    """Yield the lines of the page that lists every row of the papers' tables, and how to run it."""
    yield "# Published tables\n"
    yield PUBLISHED
    for (paper, table), figures in groupby(published_figures(), key=lambda each: (each.paper, each.table)):
        yield f"\n## {paper}: {table}\n"
        yield "| row | published | run with |\n| --- | --- | --- |"
        for row, of_row in groupby(figures, key=lambda each: each.row):
            shown = list(of_row)
            yield f"| {row} | {', '.join(map(_published, shown))} | {_run_with(shown)} |"
    for unprinted in unprinted_tables():
        yield f"\n## {unprinted.paper}: {unprinted.table}\n"
        yield f"No number of this table stands beside ours: {unprinted.known}.\n"
        yield "| row | run with |\n| --- | --- |"
        yield from (f"| {each.row} | {_command_or_reason(each)} |" for each in unprinted.rows)
    yield "\nWhat each of these systems is: [Comparison systems](comparison-systems.md)."


def systems_page() -> Iterator[str]:
    """Yield the lines of the page with a section for each system that the papers compare themselves with."""
    yield "# Comparison systems\n"
    yield SYSTEMS
    for name, system in comparison_systems().items():
        yield f"\n## {name}\n"
        yield f"{system.what}\n"
        yield from (f"- {line}" for line in _about(name, system))


def _about(name: str, system: ComparisonSystem) -> Iterator[str]:
    presets = [f"`kgqa evaluate experiment={preset} retrieval=published`" for preset in system.presets]
    yield f"Run it: {', '.join(presets)}. {system.note or ''}".strip() if presets else f"Not run: {system.reason}."
    printed = {f"{each.paper}: {each.table}" for each in published_figures() if each.method == name}
    without = {f"{each.paper}: {each.table}" for each in unprinted_tables() if any(r.row == name for r in each.rows)}
    yield f"In the tables: {'; '.join(sorted(printed | without))}."
    if system.code:
        yield f"Code of its authors: <{system.code}>."


def _published(figure: Figure) -> str:
    where = " ".join(part for part in (figure.dataset, figure.subset) if part)
    return f"{where} {figure.metric} {figure}".strip()


def _run_with(row: Sequence[Figure]) -> str:
    first = row[0]
    if first.preset is None:
        return why_not_run(first)
    unscored = dict.fromkeys(figure.metric for figure in row if figure.score is None)
    notes = [f"{', '.join(unscored)}: the table of efficiency that `kgqa reproduce` writes"] if unscored else []
    return "; ".join([f"`kgqa evaluate experiment={first.preset} retrieval=published`", *notes])


def _command_or_reason(row: UnprintedRow) -> str:
    return f"`{row.run}`" if row.run else str(row.reason)


def _section(title: str, file: ConfigFile) -> Iterator[str]:
    yield f"\n### {title}\n"
    yield f"{file.summary}\n"
    yield from _table(file.keys)


def _table(keys: Sequence[KeyDoc]) -> Iterator[str]:
    shown = [key for key in keys if key.default is not None and not key.key.endswith("_target_")]
    if not shown:
        return
    yield "| key | default | meaning |\n| --- | --- | --- |"
    for key in shown:
        meaning = key.meaning.replace("|", "\\|")
        default = "required" if key.default == "???" else f"`{key.default}`".replace("|", "\\|")
        yield f"| `{key.key}` | {default} | {meaning} |"
    yield ""


PAGES = {
    "commands": commands_page(),
    "configuration": configuration_page(),
    "published": published_page(),
    "comparison-systems": systems_page(),
}
for name, lines in PAGES.items():
    with mkdocs_gen_files.open(f"reference/{name}.md", "w") as page:
        page.write("\n".join(lines))
