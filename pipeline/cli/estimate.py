"""`kgqa estimate`: run a sample of the questions, and project what the whole run costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from dataclasses import dataclass as plain_dataclass
from itertools import chain, islice
from typing import Any

import polars as pl
from pydantic import ConfigDict, Field, NonNegativeFloat, PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass
from rich.table import Table
from rich.text import Text

from pipeline import config
from pipeline.analysis.estimate import MEASURES, Projection, add_projections, measure, project
from pipeline.analysis.met_limits import limit_notes
from pipeline.analysis.score_notes import uncounted_tokens
from pipeline.analysis.unreadable_roles import unreadable_notes
from pipeline.cli.arguments import Arguments
from pipeline.cli.output import Output
from pipeline.cli.run_output import exit_code, failure_notes
from pipeline.cli.sweep import run_configurations
from pipeline.console import Console
from pipeline.datasets.selection import Selection
from pipeline.engine.configuration import Configuration, run_dir
from pipeline.engine.sweep import Sweep
from pipeline.errors import UserError
from pipeline.evaluation.budget_limits import much_limited
from pipeline.evaluation.configuration_summary import ConfigurationSummary
from pipeline.evaluation.score_tables import plain_table
from pipeline.evaluation.unreadable import much_unreadable
from pipeline.llm.role_sections import is_embedded
from pipeline.text import amount, counted, show_command
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import count_errors, read_shards
from pipeline.traces.storage import storage_path

_SAMPLED = "pipeline.datasets.subsample.Subsample"
_SHARDS = 64
"""Into how many shards a sample is cut at least, if it has so many questions."""
_FEWEST = 2
"""Questions of a sample from which a cost is projected at least."""
_OWN_SECTION = "estimate."
_TAG = "estimate"
"""By which `kgqa ls` tells the run of a sample from other runs."""


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Plan:
    """The `estimate` section of the configuration. The keys are described in `conf/estimate.yaml`."""

    questions: int = Field(ge=2)
    gpus: PositiveInt
    tokens_per_s_per_gpu: PositiveFloat | None
    usd_per_gpu_hour: PositiveFloat | None
    usd_per_million_prompt_tokens: NonNegativeFloat | None
    usd_per_million_completion_tokens: NonNegativeFloat | None

    def __post_init__(self) -> None:
        if (self.usd_per_million_prompt_tokens is None) != (self.usd_per_million_completion_tokens is None):
            raise UserError(
                "prompts and replies both cost money: give estimate.usd_per_million_prompt_tokens and "
                "estimate.usd_per_million_completion_tokens"
            )

    @property
    def token_prices(self) -> dict[str, float]:
        """US dollars per token of each kind; empty if no prices are given."""
        prices = {
            "prompt_tokens": self.usd_per_million_prompt_tokens,
            "completion_tokens": self.usd_per_million_completion_tokens,
        }
        return {kind: price / 1e6 for kind, price in prices.items() if price is not None}


class Sampling(Sweep):
    """A sweep whose configurations answer a sample of their questions, in a run folder of its own."""

    def __init__(self, questions: int, console: Console) -> None:
        """Sample `questions` questions."""
        super().__init__(console)
        self._questions = questions
        self.wholes: list[Mapping[str, Any]] = []
        """The configurations of the whole run."""

    def prepare(self, configuration: Configuration) -> Configuration:
        """Return the configuration over the sample. Its folder is `run.dir` with `-sample` at the end."""
        whole = configuration.config
        self.wholes.append(whole)
        run, dataset = whole["run"], whole["dataset"]
        sampled = {
            "_target_": _SAMPLED,
            "dataset": dataset,
            "questions": self._questions,
            **asdict(Selection.of_run(run)),
            "strict": config.is_strict(whole),
        }
        folder = f"{run['dir']}-sample" if run["dir"] else None
        sampled_run = {**run, "dir": folder, "limit": None, "sample": None, "early_stopping": None}
        sampled_run["tags"] = [*(run["tags"] or []), _TAG]
        # All workers get a part of the sample, as they will of the whole run: one shard would measure one of them. The
        # size does not depend on their number, by which a sample would be another one.
        size = min(whole["engine"]["shard_size"], max(1, self._questions // _SHARDS))
        engine = {**whole["engine"], "shard_size": size}
        sample = {**whole, "dataset": sampled, "run": sampled_run, "engine": engine}
        return super().prepare(replace(configuration, config=sample))

    def refuse(self, configurations: Sequence[Configuration]) -> None:
        """Raise UserError if the sample was asked with another `run.reuse`: its calls are not those of this command."""
        folder, run = RunFolder(run_dir(configurations)), configurations[0].config["run"]
        saved = None if run["restart"] else folder.read_run()
        if saved is None:
            return
        before, given = saved["points"][0]["config"]["run"]["reuse"], run["reuse"]
        if {storage_path(each).absolute() for each in before} != {storage_path(each).absolute() for each in given}:
            was, now = (config.shell_override("run.reuse", runs) for runs in (before, given))
            raise UserError(
                f"the sample in {folder.path} was asked with {was}, and not with {now}, so it does not tell which "
                "calls are made: ask it again with run.restart=true"
            )


@plain_dataclass(frozen=True)
class Line:
    """One figure of the estimate."""

    what: str
    projection: Projection | None
    """None where an assumption is missing."""
    known: str
    """Where the figure comes from: measured, counted or assumed."""
    is_amount: bool = False
    """Whether it has a fraction: dollars and hours."""

    def texts(self, projection: Projection) -> tuple[str, str, str]:
        """Return the figure, and the ends of its interval."""
        ends = (projection.value, projection.low, projection.high)
        value, low, high = (amount(each) if self.is_amount else f"{each:,.0f}" for each in ends)
        return value, low, high


def run(arguments: Arguments) -> Output:
    """Run a sample of one configuration or of a sweep, and project what the whole run costs."""
    own = [word for word in arguments.overrides if word.startswith(_OWN_SECTION)]
    others = [word for word in arguments.overrides if word not in own]
    plan: Plan = config.build("estimate", config.compose(own, name="estimate"))
    sampling = Sampling(plan.questions, Console(stderr=True))
    run_configurations(Arguments(words=arguments.words, overrides=others), sampling)
    _refuse_unanswered(sampling)
    lines, basis = estimate(sampling, plan)
    figures = {
        "questions": len(_asked(sampling.wholes[0])),
        "sampled": _sampled(sampling)[0],
        "figures": [
            {"figure": line.what, **(asdict(line.projection) if line.projection else {}), "known": line.known}
            for line in lines
        ],
    }
    notes, code = [*basis, *_notes(sampling, plan)], exit_code(*(folder for folder, _ in sampling.batches))
    return Output(figures, [_table(lines, sampling)], notes, exit_code=code)


def _refuse_unanswered(sampling: Sampling) -> None:
    """Raise UserError if every question of the sample has failed."""
    if any(each.failed < each.answered for _, summaries in sampling.batches for each in summaries):
        return
    for folder, summaries in sampling.batches:
        for error in count_errors(folder)[:1]:
            show = show_command(folder.path, error.question_id, error.configuration, len(summaries))
            raise UserError(f"every question of the sample failed, so it tells no cost: {error.error} ({show})")


def estimate(sampling: Sampling, plan: Plan) -> tuple[list[Line], list[str]]:
    """Return the figures of the whole run and what they rest on. Raises UserError when the sample has no calls."""
    total = add_projections(list(_parts(sampling, plan)))
    simulated = _label(sampling)
    tokens = total["prompt_tokens"] + total["completion_tokens"]
    spent = _spent(sampling, plan)
    on_cpu = all(is_embedded(whole["llm"]) for whole in sampling.wholes)
    gpus = 1 if on_cpu else plan.gpus
    engine = sampling.wholes[0]["engine"]
    in_flight = engine["concurrency"] * engine.get("workers", 1)
    sampled = min(in_flight, max(_sampled(sampling)))
    rate = _rate(sampling, plan, spent, gpus=gpus, in_flight=sampled)
    end_s = 0.0 if plan.tokens_per_s_per_gpu or not rate else _end_s(sampling, spent, sampled)
    end = Projection(end_s, end_s, end_s)
    serving = tokens.times(1 / rate / gpus) + end if rate else None
    waiting = total["busy_s"].times(1 / in_flight) + end
    gpu_hours = serving.times(gpus / 3600) if serving else None
    price = gpu_hours.times(plan.usd_per_gpu_hour) if gpu_hours and plan.usd_per_gpu_hour else None
    of_sample = f", of the sample {sampled:,}" if sampled < in_flight else ""
    questions_in_flight = f"{counted(in_flight, 'question')} in flight{of_sample}"
    token_count = "4 characters a token" if simulated else "measured"
    counts: Mapping[str, Projection] = total
    if _is_without_counts(spent):
        token_count, counts = "not known: the servers report no token counts", {}
    known = ("assumed rate" if plan.tokens_per_s_per_gpu else "measured rate") if rate else "not known: no rate"
    lines = [
        Line("calls, each configuration alone", total["logical_calls"], "measured"),
        Line("calls that are made", total["physical_calls"], "measured"),
        Line("prompt tokens", counts.get("prompt_tokens"), token_count),
        Line("completion tokens", counts.get("completion_tokens"), token_count),
        Line("graph queries", total["kg_queries"], "measured"),
        *([] if on_cpu else [Line("GPU hours", gpu_hours, known, is_amount=True)]),
        *([Line("US dollars", price, "assumed price", is_amount=True)] if plan.usd_per_gpu_hour and not on_cpu else []),
        *(
            [Line("US dollars for tokens", counts.get("token_usd"), token_count, is_amount=True)]
            if plan.token_prices
            else []
        ),
        Line("hours", waiting.maximum(serving).times(1 / 3600) if serving else None, known, is_amount=True),
    ]
    server = "on this CPU" if on_cpu else "per GPU"
    load = f"{'' if on_cpu else f'estimate.gpus={gpus}, '}{questions_in_flight}"
    basis = list(_basis(plan, rate, simulated, spent, server=server, load=load))
    points = [point for folder, _ in sampling.batches for point in (folder.read_summary() or {}).get("points", ())]
    return lines, [*basis, *([] if _is_without_counts(spent) else uncounted_tokens(points))]


def _basis(
    plan: Plan, rate: float | None, simulated: str | None, spent: Mapping[str, float], *, server: str, load: str
) -> Iterator[str]:
    """Say what the figures are based on."""
    if simulated:
        yield "tokens are estimated at four characters each, without a tokenizer"
    if _is_without_counts(spent):
        yield "the servers report no token counts (`usage`), so no cost of tokens and no time can be projected"
        return
    if plan.token_prices:
        costs = "would cost" if simulated else "cost"
        yield f"the tokens of the sample {costs} {amount(spent['token_usd'])} US dollars at the prices given"
    if rate is None:
        parts = "" if simulated else "only the time of the sample's last attempt is known: "
        yield f"{parts}GPU hours and hours need the speed of the model: give estimate.tokens_per_s_per_gpu"
        return
    source = "assumed" if plan.tokens_per_s_per_gpu else "measured under the load of the sample"
    yield f"rate: {rate:,.0f} tokens a second {server}, {source}; {load}"


def _parts(sampling: Sampling, plan: Plan) -> Iterator[dict[str, Projection]]:
    """Yield the totals over each set of questions that configurations share."""
    wholes = iter(sampling.wholes)
    for folder, summaries in sampling.batches:
        groups: defaultdict[str, list[int]] = defaultdict(list)
        of_batch = list(islice(wholes, len(summaries)))
        for number, whole in enumerate(of_batch):
            groups[config.canonical([whole["dataset"], asdict(Selection.of_run(whole["run"]))])].append(number)
        for numbers in groups.values():
            whole = of_batch[numbers[0]]
            sample = measure(folder, numbers, token_prices=plan.token_prices)
            for rows, questions in _by_reuse(sample, whole, has_taken=_has_taken(folder)):
                yield project(rows, questions, config.build("evaluation", whole))


def _has_taken(folder: RunFolder) -> bool:
    """Whether a sample has taken calls from earlier runs. Older versions did not count them."""
    return (folder.read_summary() or {}).get("reused_llm_calls") != 0


def _by_reuse(sample: pl.DataFrame, whole: Mapping[str, Any], *, has_taken: bool) -> Iterator[tuple[pl.DataFrame, int]]:
    """Yield the sampled questions of `run.reuse` and the others, with how many of each kind the whole run asks.

    They are projected apart: the calls of the first are not made again. Raises UserError if too few of the others were
    sampled.
    """
    asked = set(_asked(whole))
    reused = asked & _answered_in(whole["run"]["reuse"] or []) if has_taken else set()
    is_reused = pl.col("question_id").is_in(reused)
    known, new = sample.filter(is_reused), sample.filter(~is_reused)
    left = len(asked) - len(reused)
    if left > len(new) < _FEWEST:
        raise UserError(
            f"run.reuse holds {'' if new.is_empty() else 'nearly '}the whole sample, which then does not tell the cost "
            f"of {counted(left, 'further question')}: give run.restart=true, and a larger estimate.questions (here "
            f"{len(sample)}) or no run.reuse"
        )
    if len(reused) > len(known) < _FEWEST:  # the sample has hardly any of them: they count as the others
        yield sample, len(asked)
        return
    yield from ((rows, of) for rows, of in ((known, len(reused)), (new, left)) if of)


def _answered_in(runs: Sequence[object]) -> set[str]:
    """Return the ids of the questions in the finished shards of some runs."""
    shards = chain.from_iterable(read_shards(RunFolder(storage_path(str(run))), ["question_id"]) for run in runs)
    return {id for shard in shards for id in shard["question_id"].unique()}


def _asked(whole: Mapping[str, Any]) -> list[str]:
    """Return the ids of the questions of the whole run. The dataset is read: rows that cannot be read are not asked."""
    examples = config.build("dataset", whole).examples(lambda _: None)
    return [example.question.id for example in Selection.of_run(whole["run"]).select(examples)]


def _label(sampling: Sampling) -> str | None:
    """Return the name of the simulation that answered the sample; None for a language model."""
    return next((each.simulated for _, summaries in sampling.batches for each in summaries if each.simulated), None)


def _spent(sampling: Sampling, plan: Plan) -> dict[str, float]:
    """Return the cost of the sample itself, one total per measure, and the seconds of its longest question."""
    batches = ((folder, range(len(summaries))) for folder, summaries in sampling.batches)
    costs = [measure(folder, numbers, token_prices=plan.token_prices) for folder, numbers in batches]
    longest = pl.col("busy_s").max().alias("longest_s")
    return pl.concat(costs).select(pl.col(MEASURES).sum(), longest).row(0, named=True)


def _is_without_counts(spent: Mapping[str, float]) -> bool:
    return spent["answered_calls"] > 0 and not spent["prompt_tokens"] + spent["completion_tokens"]


def _rate(sampling: Sampling, plan: Plan, spent: Mapping[str, float], *, gpus: int, in_flight: int) -> float | None:
    """Return the tokens per second and GPU, given or measured; None if nothing can be known."""
    if _is_without_counts(spent):
        return None
    return plan.tokens_per_s_per_gpu or (
        None if _label(sampling) else _measured_rate(sampling, spent, gpus=gpus, in_flight=in_flight)
    )


def _end_s(sampling: Sampling, spent: Mapping[str, float], in_flight: int) -> float:
    """Return how many seconds longer the sample took than with so many questions in flight until its end.

    At the end of a run, the last questions are answered, and fewer and fewer are in flight. This cannot take longer
    than the longest question: more is time that a question takes besides its answer, and counts for each.
    """
    return min(max(0.0, _seconds(sampling) - spent["busy_s"] / in_flight), spent["longest_s"])


def _seconds(sampling: Sampling) -> float:
    """Return how many seconds the sample took by the clock, without the opening of models and graphs."""
    summaries = [folder.read_summary() or {} for folder, _ in sampling.batches]
    return float(sum(times["wall_s"] - times["opening_s"] for times in summaries))


def _measured_rate(sampling: Sampling, spent: Mapping[str, float], *, gpus: int, in_flight: int) -> float | None:
    """Return the tokens per second and GPU while so many questions of the sample were in flight; None if not known.

    The seconds are those by the clock without the end of the sample, in which fewer are in flight: it would count as
    often as the sample is smaller than the run. They are not known of a sample that was stopped and resumed.
    """
    summaries = [folder.read_summary() or {} for folder, _ in sampling.batches]
    seconds = _seconds(sampling) - _end_s(sampling, spent, in_flight)
    if seconds <= 0 or any(times.get("resumed") for times in summaries):
        return None
    tokens = spent["prompt_tokens"] + spent["completion_tokens"]
    if not tokens and spent["physical_calls"]:
        raise UserError("no call that the sample has made was answered, so it tells no cost: see its failed questions")
    if not tokens:
        raise UserError(
            "the sample made no call of its own: ask it again without run.reuse and with run.restart=true, or give "
            "estimate.tokens_per_s_per_gpu"
        )
    return float(tokens / seconds / gpus)


def _sampled(sampling: Sampling) -> list[int]:
    """Return how many questions of each configuration were sampled."""
    return [summary.questions for _, summaries in sampling.batches for summary in summaries]


def _table(lines: Sequence[Line], sampling: Sampling) -> Table:
    whole = sampling.wholes[0]
    confidence = config.build("evaluation", whole).confidence
    chosen = {config.canonical([each["dataset"], asdict(Selection.of_run(each["run"]))]) for each in sampling.wholes}
    datasets = {config.canonical(each["dataset"]) for each in sampling.wholes}
    several = " of the first dataset" if len(datasets) > 1 else " of the first configuration" if len(chosen) > 1 else ""
    table = plain_table(f"projected from {_sampled(sampling)[0]} of {counted(len(_asked(whole)), 'question')}{several}")
    table.add_column("of the whole run", no_wrap=True)
    table.add_column("estimate", justify="right", no_wrap=True)
    table.add_column(f"{100 * confidence:g} % interval", justify="right", no_wrap=True)
    table.add_column("how it is known", overflow="fold")
    for line in lines:
        if (one := line.projection) is None:
            table.add_row(line.what, "–", "", Text(line.known))
            continue
        value, low, high = line.texts(one)
        table.add_row(line.what, value, f"{low}–{high}", Text(line.known))
    return table


def _models(sampling: Sampling) -> list[str]:
    """Return the names of the language models that the configurations ask, or their servers."""
    sections = [keys for whole in sampling.wholes for keys in config.models(whole["llm"]).values()]
    return sorted({str(keys.get("model") or keys.get("base_urls")) for keys in sections})


def _notes(sampling: Sampling, plan: Plan) -> Iterator[str]:
    if plan.token_prices and not _label(sampling) and len(models := _models(sampling)) > 1:
        has_several = any(len(config.models(whole["llm"])) > 1 for whole in sampling.wholes)
        of_roles = f"role_costs of {sampling.batches[0][0].path} has the tokens of each role (docs/reference/python.md)"
        alone = "estimate the configurations of each model alone"
        yield (
            f"the prices are taken for the tokens of all models ({', '.join(models)}): where they differ, "
            f"{of_roles if has_several else alone}"
        )
    if (fewest := min(_sampled(sampling))) < plan.questions:
        whole = "the run" if fewest == max(_sampled(sampling)) else "a dataset"
        yield f"estimate.questions={plan.questions}, but {whole} has only {counted(fewest, 'question')}: all were asked"
    for folder, summaries in sampling.batches:
        if failures := failure_notes(folder, summaries, exits=True):
            yield "the estimate may be too low, as failed questions of the sample count with what they cost until then:"
            yield from failures
        yield from _unreadable_notes(folder, summaries)
    if label := _label(sampling):
        yield f"answered by {label}: a language model makes other errors and writes replies of other lengths"
    if sampling.wholes[0]["run"]["early_stopping"]:
        yield "run.early_stopping drops configurations: this is the cost if none is dropped"
    before = sampling.wholes[0]["run"]["reuse"] or []
    reuse = config.shell_override("run.reuse", [*before, *(str(folder.path) for folder, _ in sampling.batches)])
    instead = f" in place of {config.shell_override('run.reuse', before)}" if before else ""
    if _spent(sampling, plan)["logical_calls"]:
        yield f"the calls of the sample need not be made again: add {reuse}{instead}"


def _unreadable_notes(folder: RunFolder, summaries: Sequence[ConfigurationSummary]) -> Iterator[str]:
    """Say that many replies of a sample could not be read, or that many questions met a limit: both change its cost."""
    if much_unreadable(summaries):
        yield "methods ask again for replies that cannot be read, and all calls that were made are in the estimate:"
        yield from unreadable_notes(folder, summaries)
    if much_limited(summaries):
        yield from limit_notes(folder, summaries)
