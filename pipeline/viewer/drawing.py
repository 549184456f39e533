"""Places the boxes and lines of a question's trees, and the bars of its time line. The templates draw them as SVG.

Colours are in `pages/style.css`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pipeline.analysis.losses import critical_path
from pipeline.analysis.question_trace import QuestionTrace, StepTrace
from pipeline.analysis.question_tree import TreeNode
from pipeline.text import printable

_LETTER = 6.9
"""Width of a letter, on average, of a text of 12.5 pixels."""
_BOLD_LETTER = 7.8
_LINE = 16
_PAD = 7
_GAP = 8
"""Between boxes that stand above each other."""
_COLUMN_GAP = 34
_CHIP = 19
_WIDEST = {"question": 0, "group": 30, "step": 34, "item": 48, "fact": 44}
"""Characters of a line in a box."""
_MOST_LINES = {"group": 3, "step": 3, "item": 3, "fact": 3}
_MOST_CHIPS = 14
_MOST_CHILDREN = 12
"""Items drawn below a decision."""
_FOLDED = 3
"""Plain texts below an item that are drawn in boxes of their own; more of them are written into its box."""
_MOST_BOXES = 900
_SCORE = 46
"""Width of a score."""


@dataclass(slots=True)
class Chip:
    """A call or lookup that led to a decision: a small square in its box."""

    step: int
    kind: str
    role: str
    x: float
    is_lost: bool


@dataclass(slots=True)
class Box:
    """One node, with its texts. `y` is its upper edge."""

    x: float
    y: float
    width: float
    height: float
    node: TreeNode
    lines: Sequence[str]
    details: Sequence[str]
    step: int | None
    """The step that a click opens."""
    chips: Sequence[Chip] = ()
    score: str = ""
    share: float = 0.0
    """The score, from 0 to 1, relative to the best beside it."""
    is_lost: bool = False
    title: str = ""


@dataclass(slots=True)
class Drawing:
    """Boxes and the lines between them."""

    boxes: list[Box] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    width: float = 0.0
    height: float = 0.0
    left_out: int = 0
    """Nodes that were left out because there are too many."""


def draw_tree(tree: TreeNode, steps: Mapping[int, StepTrace], lost: int | None) -> Drawing:
    """Place the nodes below the root: what stands below a node is drawn to the right of it, from its height on."""
    return _Layout(steps, lost).draw(tree)


class _Layout:
    def __init__(self, steps: Mapping[int, StepTrace], lost: int | None) -> None:
        self._steps, self._lost = steps, lost
        self._drawing = Drawing()
        self._y = float(_GAP)

    def draw(self, tree: TreeNode) -> Drawing:
        self._place_all([_shortened(child) for child in tree.children], None)
        drawing = self._drawing
        drawing.height = self._y + _GAP
        drawing.width = max((box.x + box.width for box in drawing.boxes), default=0.0) + _GAP
        return drawing

    def _place_all(self, nodes: Sequence[TreeNode], parent: Box | None) -> None:
        best = max((node.score for node in nodes if node.score is not None), default=0.0)
        x = _GAP if parent is None else parent.x + parent.width + _COLUMN_GAP
        step = parent.step if parent else None
        for node in nodes:
            if len(self._drawing.boxes) >= _MOST_BOXES:
                self._drawing.left_out += 1 + _size(node)
                continue
            box = self._box(node, x, self._y, step, best)
            self._drawing.boxes.append(box)
            if parent is not None:
                self._drawing.lines.append(_line(parent, box))
            top = self._y
            self._place_all(node.children, box)
            self._y = max(self._y, top + box.height + _GAP)

    def _box(self, node: TreeNode, x: float, y: float, step: int | None, best: float) -> Box:
        limit = _WIDEST[node.kind]
        letter = _BOLD_LETTER if node.kind == "group" else _LETTER
        lines = _lines(node.label, limit, _MOST_LINES[node.kind])
        details = _lines(node.detail, limit + 4, 2) if node.detail else []
        chips = self._chips(node)
        score = "" if node.score is None else f"{node.score:.3g}"
        widths = [*(len(line) * letter for line in lines), *(len(line) * _LETTER * 0.94 for line in details)]
        width = max(widths, default=0.0) + 2 * _PAD + (_SCORE if score else 0)
        rows = len(lines) + len(details) + (1 if chips else 0)
        own = node.step if node.step is not None else step
        return Box(
            x=x,
            y=y,
            width=max(width, 2 * _PAD + _CHIP * len(chips)),
            height=rows * _LINE + _PAD,
            node=node,
            lines=lines,
            details=details,
            step=own,
            chips=chips,
            score=score,
            share=max(0.0, node.score / best) if node.score is not None and best > 0 else 0.0,
            is_lost=self._lost is not None and self._lost in node.steps,
            title=printable("\n".join(filter(None, [node.label[:2000], node.detail[:2000]]))),
        )

    def _chips(self, node: TreeNode) -> Sequence[Chip]:
        numbers = list(node.before)
        if len(numbers) > _MOST_CHIPS:  # the others are in the list of steps
            kept = {*numbers[: _MOST_CHIPS - 1], *({self._lost} & set(numbers))}
            numbers = [number for number in numbers if number in kept]
        return [
            Chip(
                step=number,
                kind=self._steps[number].kind,
                role=self._steps[number].role,
                x=at * _CHIP,
                is_lost=number == self._lost,
            )
            for at, number in enumerate(numbers)
        ]


def _shortened(node: TreeNode) -> TreeNode:
    """Leave out items of which there are many; those on a gold path stay."""
    children = [_shortened(child) for child in node.children]
    if node.kind == "item" and len(children) > _FOLDED and all(_is_plain(child) for child in children):
        return replace(node, children=(), detail=", ".join(child.label for child in children))
    items = [at for at, child in enumerate(children) if child.kind in {"item", "fact"}]
    if len(items) > _MOST_CHILDREN:
        gold = [at for at in items if children[at].is_gold][: _MOST_CHILDREN // 2]
        kept = {*gold, *[at for at in items if at not in gold][: _MOST_CHILDREN - len(gold)]}
        more = TreeNode(f"and {len(items) - len(kept):,} more", children[items[0]].kind, is_dropped=True)
        children = [*(child for at, child in enumerate(children) if at in kept or at not in items), more]
    return replace(node, children=children)


def _is_plain(node: TreeNode) -> bool:
    return node.kind == "item" and not node.children and node.score is None and not node.detail


def _size(node: TreeNode) -> int:
    return sum(1 + _size(child) for child in node.children)


def _lines(text: str, limit: int, most: int) -> list[str]:
    """Return a text in at most `most` lines of `limit` characters."""
    clean = " ".join(printable(text[:4000]).split())
    lines = textwrap.wrap(clean, limit, max_lines=most, placeholder=" …")
    return lines or [""]


def _line(parent: Box, child: Box) -> str:
    """Return the path of a curve from the right edge of a box to the left edge of one of the next column."""
    x, y = parent.x + parent.width, parent.y + parent.height / 2
    to_x, to_y = child.x, child.y + child.height / 2
    middle = to_x - _COLUMN_GAP / 2
    return f"M{x:.1f},{y:.1f}H{middle - 8:.1f}C{middle:.1f},{y:.1f} {middle:.1f},{to_y:.1f} {to_x:.1f},{to_y:.1f}"


# The time line


@dataclass(frozen=True, slots=True)
class Bar:
    """One call or lookup. `own` is the part of its width without queues."""

    step: int
    kind: str
    x: float
    width: float
    own: float
    lane: int
    is_lost: bool
    is_critical: bool
    """Whether the question waited for it."""
    title: str


@dataclass(frozen=True, slots=True)
class Lane:
    """The bars of one role."""

    role: str
    row: int
    rows: int


@dataclass(frozen=True, slots=True)
class TimeLine:
    """The calls and lookups of a question over its seconds."""

    bars: Sequence[Bar]
    lanes: Sequence[Lane]
    ticks: Sequence[tuple[float, str]]
    rows: int
    seconds: float


_SCALE = 100.0
_LEAST = 0.8
"""Width of the narrowest bar."""


def draw_time_line(trace: QuestionTrace) -> TimeLine:
    """Place the calls and lookups, a lane for each role, on a scale of 100 units.

    Bars at the same time stand below each other.
    """
    steps = [step for step in trace.steps if step.kind != "decision"]
    seconds = max((step.start_s + step.duration_s for step in steps), default=0.0)
    scale = (_SCALE - _LEAST) / seconds if seconds > 0 else 0.0
    waits = critical_path([_timing(step) for step in trace.steps], trace.row.get("critical_steps"))["step"]
    critical = set(waits.to_list())
    bars: list[Bar] = []
    lanes: list[Lane] = []
    row = 0
    for role in dict.fromkeys(step.role for step in steps):
        ends: list[float] = []
        for step in steps:
            if step.role == role:
                x, width = step.start_s * scale, max(_LEAST, step.duration_s * scale)
                at = next((at for at, end in enumerate(ends) if end <= x + 0.001), len(ends))
                ends[at : at + 1] = [x + width]
                own = width * min(1.0, (step.own_s or 0.0) / step.duration_s) if step.duration_s else width
                bars.append(
                    Bar(
                        step=step.number,
                        kind=step.kind,
                        x=x,
                        width=width,
                        own=own,
                        lane=row + at,
                        is_lost=trace.loss is not None and trace.loss.step == step.number,
                        is_critical=step.number in critical,
                        title=f"step {step.number}, {printable(step.role)}, {step.duration_s:.3f} s",
                    )
                )
        lanes.append(Lane(printable(role), row, len(ends)))
        row += len(ends)
    return TimeLine(bars, lanes, list(_ticks(seconds, scale)), row, seconds)


def _timing(step: StepTrace) -> Mapping[str, object]:
    names = ("kind", "role", "start_s", "duration_s", "own_s", "shared")
    return {"index": step.number, **{name: getattr(step, name) for name in names}}


def _ticks(seconds: float, scale: float) -> Iterator[tuple[float, str]]:
    """Yield places and texts of about five round numbers of seconds."""
    if seconds <= 0:
        return
    unit = 10.0 ** (len(f"{seconds:.0f}") - 1 if seconds >= 1 else -1)
    while seconds / unit < 0.5:
        unit /= 10
    size = next(unit * factor for factor in (0.1, 0.2, 0.5, 1, 2, 5) if seconds / (unit * factor) <= 6)
    at = 0.0
    while at <= seconds:
        yield at * scale, f"{at:.3g} s"
        at += size
