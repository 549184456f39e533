"""What `kgqa compare` prints: what it reads, the differences of configurations, flipped questions, rerun variance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.table import Table
from rich.text import Text

from pipeline.analysis.compare import Comparison, Flips, Selection, count_failed, mean_cost
from pipeline.analysis.paired import Clusters, RunConfiguration
from pipeline.analysis.rerun_variance import RerunVariance
from pipeline.config import canonical, written
from pipeline.evaluation.configuration_summary import STANDARD_SCORES
from pipeline.evaluation.score_tables import (
    SHARED_COLUMN,
    FittingTable,
    PValue,
    key_columns,
    percent,
    plain_table,
    too_wide,
)
from pipeline.evaluation.simulated import label_lines
from pipeline.grouping import grouped
from pipeline.percentages import percentage
from pipeline.text import agreeing, counted, counted_range

_CORRECTIONS = {"holm": "Holm", "bh": "Benjamini-Hochberg"}
_STYLES = {"better": "green", "worse": "red", "noise": "yellow"}
_INTERVALS = "intervals of the difference"
_KEPT = ("#", "run:#", "difference", "verdict")
"""Columns that every terminal shows."""
_COSTS = ("tokens", "calls", "flips")
_STATISTICS = ("questions", "failed", _INTERVALS, "p", "method")
"""What a narrow terminal leaves out after the keys, the first one first."""
_MOST_KEY_COLUMNS = 6
_PRESETS = ("method", "experiment", "llm", "retrieval", "method._target_", "llm._target_")
"""What decides which keys a method and a model have, and their defaults."""
_DEFAULTS = ("method.", "llm.", "retrieval.", "budget.")
"""The beginnings of keys whose defaults may follow the dataset, or be edited in a file between two runs."""
_MODEL = "answered by"
"""The heading of the models, where no key tells them apart."""
_SHOWN_ANSWERS = 3
_LONGEST_ANSWER, _LONGEST_QUESTION = 60, 200
"""In characters."""
_ABSENT = "–"


def reading_lines(configurations: Sequence[RunConfiguration]) -> Iterator[str]:
    """Describe what each run folder contributes: configurations, questions, dataset, and what answered."""
    for folder in dict.fromkeys(each.folder for each in configurations):
        own = [each for each in configurations if each.folder == folder]
        noun = "question" if any(each.failed for each in own) else "answered question"
        questions = counted_range([each.rows.height for each in own], noun)
        datasets = ", ".join(sorted({f"{each.dataset} ({each.rows['split'][0]})" for each in own}))
        answering = sorted({each.answered_by for each in own})
        answered_by = answering[0] if len(answering) == 1 else counted(len(answering), "model")
        count = sum(each.failed for each in own)
        failed = f", {count:,} failed{' altogether' if len(own) > 1 else ''}" if count else ""
        yield (
            f"{folder.path}: {counted(len(own), 'configuration')}, {questions}{' each' if len(own) > 1 else ''}"
            f"{failed}, {datasets}, answered by {answered_by}{_retrievers(own)}"
        )


def best_of(comparisons: Sequence[Comparison], top: int) -> list[Comparison]:
    """Return the `top` configurations with the highest scores, the highest first.

    Each score is seen from the base, on the questions that both answered: other questions may be easier.
    """
    return sorted(comparisons, key=lambda each: (-each.difference.mean, each.cost.calls))[:top]


def comparison_table(
    selection: Selection,
    comparisons: Sequence[Comparison],
    *,
    score: str,
    correction: str,
    clusters: Clusters | None,
    top: int,
) -> FittingTable:
    """Build a table with a line for the base and for each of the `top` configurations with the highest scores."""
    shown = best_of(comparisons, top)
    columns = {each: _columns(selection, shown, score, intervals=each) for each in (True, False)}
    base = selection.base
    label = f"{base.method} ({base.label})" if base.label else base.method
    counts = counted_range([each.questions for each in comparisons], "common question")
    title = (
        f"{counted(len(comparisons), 'configuration')} compared with {base.name}, {label}, on {counts} "
        f"of {base.dataset}"
    )
    notes = [*_footnotes(comparisons, _CORRECTIONS[correction], clusters), *_rest(comparisons, shown)]
    labels = {each.label for each in (base, *selection.others)}

    def build(left_out: Sequence[str]) -> Table:
        # A file has all columns, and goes without the lines above the table, which say what answered.
        answered = [] if left_out else label_lines(labels)
        table = plain_table(title, "\n".join([*notes, *answered, *too_wide(left_out)]), padding=0)
        all_cells = columns[_INTERVALS not in left_out]
        kept = {heading: cells for heading, cells in all_cells.items() if heading not in left_out}
        for heading, cells in kept.items():
            short = heading.replace("_", "_\n") if max(map(len, cells)) < len(heading) else heading
            short += f" ({base.label})" if heading == "method" and answered and len(labels) == 1 else ""
            left = heading in ("run:#", "method", SHARED_COLUMN, "verdict")
            fixed = heading in ("difference", "verdict")
            table.add_column(short, justify="left" if left else "right", overflow="fold", no_wrap=fixed)
        for row in zip(*kept.values(), strict=True):
            table.add_row(*row)
        return table

    return FittingTable(build, _optional(columns[True], STANDARD_SCORES.get(score, score)))


def _optional(columns: Mapping[str, Sequence[Text]], score: str) -> list[str]:
    """Return the columns that a narrow terminal leaves out, the first one first.

    These are first the keys that only some of the methods have, which say nothing of the others, and a column shared by
    many keys, then the costs, then the other keys. What shows the difference stays longest.
    """
    statistics = (*_STATISTICS, score)
    keys = [heading for heading in columns if heading not in (*_KEPT, *_COSTS, *statistics)]
    some = [key for key in keys if key == SHARED_COLUMN or any(cell.plain == _ABSENT for cell in columns[key])]
    wanted = [*some, *_COSTS, *reversed([key for key in keys if key not in some]), *statistics]
    return [heading for heading in wanted if heading in columns or heading == _INTERVALS]


def flip_table(base: RunConfiguration, flips: Flips, *, binary: bool, top: int) -> Table | Text:
    """Build a table of the questions with another score than in the base, the first `top` in each direction.

    If no question has another score, returns a sentence that says so.
    """
    if not (flips.lost or flips.won):
        return Text(f"from {base.name} to {flips.other.name}: 0 questions changed")
    names = ("right → wrong", "wrong → right") if binary else ("with a lower score", "with a higher score")
    parts = dict(zip(names, (flips.lost, flips.won), strict=True))
    counts = ", ".join(f"{counted(len(part), 'question')} {name}" for name, part in parts.items())
    more = max(map(len, parts.values())) - top
    title = f"from {base.name} to {flips.other.name}: {counts}"
    caption = f"the first {top} of each; top={more + top} prints all, json=true has all" if more > 0 else None
    table = plain_table(title, caption, padding=0)
    table.add_column("question", overflow="fold", ratio=5)
    for heading in (base.name, flips.other.name, "gold"):
        table.add_column(heading, overflow="fold", ratio=3)
    for name, part in parts.items():
        for flip in part[:top]:
            question = Text(_one_line(flip.question, _LONGEST_QUESTION))
            question.append(f"\n{flip.question_id}\n{name}", "dim")
            table.add_row(question, *map(_answers, (flip.base, flip.other, flip.gold)))
        table.add_section()
    return table


def rerun_variance_lines(base: RunConfiguration, variance: RerunVariance, *, score: str, questions: int) -> list[str]:
    """Describe how many calls changed in a rerun, the effect on the score, and which differences are noise."""
    sample = f"noise: {counted(variance.asked, 'question')} of {base.name} {agreeing('were', variance.asked)} run again"
    if variance.questions < variance.asked:
        sample += f", of which it had answered {variance.questions:,}"
    margin = f"Between two runs over {counted(questions, 'question')}, differences of up to "
    margin += f"{percentage(variance.margin(questions))} percentage points"
    if variance.is_equal:
        return [
            f"{sample}, and each of {counted(variance.repeated, 'call')} returned the same text:",
            "the model is deterministic, and its noise is 0"
            if variance.deterministic
            else f"so few do not prove that the model is deterministic. {margin} may be noise.",
        ]
    net = variance.net
    return [
        f"{sample}. Of {counted(variance.repeated, 'repeated call')}, {variance.differing:,} returned a different text "
        f"({percentage(variance.differing / max(1, variance.repeated))} %); "
        f"{counted(variance.unrepeated, 'more call')} by one run only.",
        f"{score} changes by {percentage(variance.absolute)} percentage points per question in absolute value, and by "
        f"{net.points}{f' ({net.interval_points})' if net.interval_points else ''} on average.",
        f"{margin} are noise.",
    ]


def _retrievers(configurations: Sequence[RunConfiguration]) -> str:
    """Return the end of a sentence: the retrievers of the configurations, and where presets are not as published."""
    names = dict.fromkeys(each.retriever for each in configurations if each.retriever)
    departures = dict.fromkeys(name for each in configurations for name in each.departures)
    retrievers = f", retriever: {'; '.join(names)}" if names else ""
    return retrievers + (f" (not as published: {', '.join(departures)})" if departures else "")


def _columns(
    selection: Selection, shown: Sequence[Comparison], score: str, *, intervals: bool
) -> dict[str, list[Text]]:
    """Return the cells of each column: those of the base, then those of the comparisons."""
    base = selection.base
    rows = [base, *(each.configuration for each in shown)]
    compared = [base, *selection.others]
    places = [compared.index(row) for row in rows]
    methods = _methods(compared)
    keys = key_columns(_values(compared), methods, most=_MOST_KEY_COLUMNS)
    # The base's own row is of the questions that all have in common with it, or else of all its questions.
    has_common = len({(each.questions, each.base, each.base_cost) for each in shown}) == 1
    if has_common:
        scored, mean, cost, base_failed = shown[0].questions, shown[0].base, shown[0].base_cost, shown[0].base_failed
    else:
        own = base.rows.drop_nulls(score)
        mean = float(own[score].to_numpy().mean())
        scored, cost, base_failed = own.height, mean_cost(base, own), count_failed(base, own)
    failed = [base_failed, *(each.failed for each in shown)]
    questions = [scored, *(each.questions for each in shown)]
    scores = [mean, *(each.other for each in shown)]
    costs = [cost, *(each.cost for each in shown)]
    texts: dict[str, list[str]] = {
        "#" if len({row.folder for row in compared}) == 1 else "run:#": [row.name for row in rows],
        **({"method": [methods[place] for place in places]} if len(set(methods)) > 1 else {}),
        **{heading: [cells[place] for place in places] for heading, cells in keys.items()},
        **({"questions": [f"{each:,}" for each in questions]} if len(set(questions)) > 1 else {}),
        **({"failed": [f"{each:,}" for each in failed]} if any(failed) else {}),
        STANDARD_SCORES.get(score, score): list(map(percent, scores)),
    }
    return {
        **{heading: list(map(Text, cells)) for heading, cells in texts.items()},
        "difference": [Text(_ABSENT), *(_difference(each, intervals=intervals) for each in shown)],
        "flips": [Text(_ABSENT), *(Text(f"+{len(each.won)} -{len(each.lost)}") for each in shown)],
        "p": [Text(_ABSENT), *(PValue(each.corrected_p) for each in shown)],
        "verdict": [Text("base"), *(Text(each.verdict, _STYLES.get(each.verdict, "")) for each in shown)],
        "calls": [Text(f"{cost.calls:.1f}") for cost in costs],
        "tokens": [Text(f"{cost.tokens:,.1f}") for cost in costs],
    }


def _values(configurations: Sequence[RunConfiguration]) -> list[dict[str, str]]:
    """Return the values of the keys that an override of any configuration sets, also where one has the default.

    So are keys that differ though no override sets them. Other columns say what the keys that are left out change: the
    questions, and what answered.
    """
    left_out = [
        *(["llm"] if len({each.label for each in configurations}) > 1 else []),
        *(["run.limit"] if len({each.folder for each in configurations}) > 1 else []),
    ]
    set_keys = dict.fromkeys(key for each in configurations for key in each.set_keys if key not in left_out)
    keys = [*set_keys, *_differing_defaults(configurations, set_keys)]
    found = [{key: _word(each.parameters[key]) for key in keys if key in each.parameters} for each in configurations]
    if _have_other_models(configurations):
        found = [{**values, _MODEL: each.answered_by} for values, each in zip(found, configurations, strict=True)]
    return found


def _have_other_models(configurations: Sequence[RunConfiguration]) -> bool:
    """Whether several models answered under equal keys: without `llm.model`, a server answers with what it serves."""

    def keys(each: RunConfiguration) -> str:
        return canonical({key: value for key, value in each.parameters.items() if key.startswith("llm")})

    return any(len({each.answered_by for each in alike}) > 1 for alike in grouped(configurations, keys).values())


def _differing_defaults(configurations: Sequence[RunConfiguration], set_keys: Iterable[str]) -> list[str]:
    """Return the keys whose values differ though no override sets them: of keys with equal values, the first."""
    own = [key for key in set_keys if key.startswith(_DEFAULTS)]
    differing: dict[tuple[str, ...], str] = {}
    for alike in grouped(configurations, lambda each: _choices(each, own)).values():
        known = [each.parameters for each in alike]
        shared = set.intersection(*map(set, known))  # an older run lacks newer keys
        for key in (key for key in known[0] if key in shared and key.startswith(_DEFAULTS)):
            values = tuple(canonical(each[key]) for each in known)
            if len(set(values)) > 1:
                differing.setdefault(values, key)
    return list(differing.values())


def _choices(configuration: RunConfiguration, keys: Iterable[str]) -> str:
    """Return the values of keys, and the presets of the method and the model, as a text."""
    parameters = configuration.parameters
    return canonical([parameters.get(key) for key in (*_PRESETS, *keys)])


def _methods(configurations: Sequence[RunConfiguration]) -> list[str]:
    """Return the name of each method, with what answered if that differs between the configurations."""
    labels = {each.label for each in configurations}
    return [
        f"{each.method} ({each.label})" if len(labels) > 1 and each.label else each.method for each in configurations
    ]


def _word(value: object) -> str:
    if isinstance(value, float) and value.is_integer():  # 0.0 and 0 are one value
        value = int(value)
    return written(value)


def _difference(each: Comparison, *, intervals: bool) -> Text:
    if each.verdict == "same":  # the interval of equal scores is 0…0, which claims too much, so none is printed
        return Text("0.0")
    mean, interval = Text(each.difference.points), each.difference.interval_points
    return mean.append(f" {interval}", "dim") if intervals and interval else mean


def _footnotes(comparisons: Sequence[Comparison], correction: str, clusters: Clusters | None) -> Iterator[str]:
    yield (
        f"percent; difference: percentage points, {100 * comparisons[0].confidence:g} % paired bootstrap interval\n"
        "flips: questions won and lost; costs per question; failed questions are wrong"
    )
    is_exact = [each.exact_p is not None for each in comparisons]
    exact = "McNemar's exact test" + ("" if all(is_exact) else " where all scores are 0 or 1, else ")
    test = (exact if any(is_exact) else "") + ("" if all(is_exact) else "the paired bootstrap")
    tests = comparisons[0].tests
    once = "; those of a search with equal scores, calls and tokens count once"
    alike = once if tests < len(comparisons) else ""
    several = f", corrected for {counted(tests, 'comparison')} ({correction}){alike}"
    if tests:
        yield f"verdict: by p, {test}{several if len(comparisons) > 1 else ''}"
    else:
        yield "no test: no other configuration differs from the base in its scores, calls or tokens"
    if any(each.verdict == "inconclusive" and each.difference.low * each.difference.high > 0 for each in comparisons):
        yield "an interval is of one comparison: it may leave out 0 where the corrected p is inconclusive"
    if clusters and any(each.sources < each.questions for each in comparisons):
        groups = counted_range([each.sources for each in comparisons], "cluster")
        yield f"intervals and p are clustered: questions share a `{clusters.field}`, {groups}"


def _rest(comparisons: Sequence[Comparison], shown: Sequence[Comparison]) -> Iterator[str]:
    """Count the configurations that are not printed, by verdict."""
    verdicts = Counter(each.verdict for each in comparisons)
    verdicts.subtract(each.verdict for each in shown)
    if rest := len(comparisons) - len(shown):
        counts = ", ".join(f"{count:,} {verdict}" for verdict, count in verdicts.most_common() if count)
        yield (
            f"{counted(rest, 'more configuration')} left out of the table, with the verdicts {counts}: "
            f"top={len(comparisons)} or json=true prints all"
        )


def _answers(answers: Sequence[str]) -> Text:
    shown = [_one_line(answer, _LONGEST_ANSWER) for answer in answers[:_SHOWN_ANSWERS]]
    more = len(answers) - len(shown)
    return Text("\n".join([*shown, *([f"and {more} more"] if more else [])]) or _ABSENT)


def _one_line(text: str, longest: int) -> str:
    """Return a model's text as one printable line, without terminal commands."""
    line = "".join(character if character.isprintable() else " " for character in text)
    return line if len(line) <= longest else f"{line[:longest]}…"
