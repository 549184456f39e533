"""The scores of one configuration as files have them: one value in each cell."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table

from pipeline.evaluation.configuration_summary import STANDARD_SCORES, ConfigurationSummary
from pipeline.evaluation.paper_metrics import METRICS_OF_METHOD, paper_metrics_of
from pipeline.evaluation.rescore import SCORES
from pipeline.evaluation.retrievers import departures_label
from pipeline.evaluation.score_tables import COSTS, percent, plain_table


def full_score_tables(
    printed: Sequence[RenderableType], summaries: Sequence[ConfigurationSummary]
) -> list[RenderableType]:
    """Return the printed tables; if the first is `score_table` of a single configuration, `one_value_table` for it."""
    return list(printed) if len(summaries) > 1 else [one_value_table(summaries[0]), *printed[1:]]


def one_value_table(summary: ConfigurationSummary) -> Table:
    """Build a table with one row. Its scores are those of `score_table` and all others that are of no other paper."""
    others = {name for names in METRICS_OF_METHOD.values() for name in names} - {*paper_metrics_of(summary.method)}
    scores = {name: summary.scores[name] for name in SCORES if name in summary.scores and name not in others}
    counts = {"questions": summary.questions, "failed": summary.failed, "not run": summary.not_run}
    costs = {name: heading for name, heading in COSTS.items() if name in summary.counters}  # a file has no costs
    texts = {
        "method": f"{summary.method}{departures_label(summary)}",
        **({"answered by": _answerer(summary)} if costs else {}),  # of a file, that is not known
        "dataset": summary.dataset,
    }
    figures = {
        **{heading: f"{count:,}" for heading, count in (counts | {"without gold": summary.empty_gold}).items()},
        **{
            STANDARD_SCORES.get(name, name): percent(score.mean)
            + (f" {percent(score.low)}–{percent(score.high)}" if score.has_interval else "")
            for name, score in scores.items()
        },
        **{heading: f"{summary.counters[name] / summary.answered:,.1f}" for name, heading in costs.items()},
    }
    note = f"percent, {100 * summary.confidence:g} % intervals; costs per question; failed questions count as wrong"
    table = plain_table(None, note)
    for heading in (*texts, *figures):
        table.add_column(heading, justify="right" if heading in figures else "left")
    table.add_row(*texts.values(), *figures.values())
    return table


def _answerer(summary: ConfigurationSummary) -> str:
    return summary.simulated or ", ".join(filter(None, ["language model", summary.label]))
