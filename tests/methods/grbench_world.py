"""A small synthetic GRBench domain in the official format: books, authors, publishers, series, and questions."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

_FIRST = ("Ysolde", "Tavin", "Lirae", "Odo", "Edda", "Joss", "Ilka", "Orla", "Bram", "Mirel")
_LAST = ("Crane", "Orsa", "Dobson", "Marrick", "Venn", "Quist", "Marlo", "Pell", "Tarn")
_NOUNS = ("Ferry", "Quay", "Lantern", "Salt", "Harbour", "Winter", "Mill", "Tide", "Kettle", "Orchard", "Loom")
_SERIES = ("The Ondrel Cycle", "Eight Harbours", "Chronicle of Quessland", "The Glass Years")
_PUBLISHERS = ("Lanternhouse", "Mossgate & Sons", "Port Hallow Press")


def write_grbench(folder: Path, *, books: int = 120, seed: int = 5) -> int:
    """Write `goodreads/graph.json` and `goodreads/data.json` under a folder. Return the number of questions."""
    graph = _graph(books, Random(seed))
    questions = list(_questions(graph, Random(seed + 1)))
    target = folder / "goodreads"
    target.mkdir(parents=True)
    (target / "graph.json").write_text(json.dumps(graph))
    lines = ({"qid": str(n), "question": text, "answer": answer} for n, (text, answer) in enumerate(questions))
    (target / "data.json").write_text("\n".join(map(json.dumps, lines)))
    return len(questions)


def _graph(books: int, rng: Random) -> dict[str, Any]:
    authors = {str(1000 + n): f"{a} {b}" for n, (a, b) in enumerate((a, b) for a in _FIRST for b in _LAST)}
    publishers = {f"pub_{n}": name for n, name in enumerate(_PUBLISHERS)}
    series = {str(3000 + n): name for n, name in enumerate(_SERIES)}
    titles = [f"{a}, {b} [{n}]" if n % 7 == 0 else f"The {a} {b} {n}" for n, (a, b) in enumerate(_pairs(books, rng))]
    nodes: dict[str, Any] = {}
    back: dict[str, list[str]] = {id: [] for id in (*authors, *publishers, *series)}
    for n, title in enumerate(titles):
        id = str(5000 + n)
        by = rng.sample(sorted(authors), rng.choice((1, 1, 2, 3)))
        house, cycle = rng.choice(sorted(publishers)), rng.sample(sorted(series), rng.choice((0, 1)))
        features = {"title": title, "language_code": rng.choice(("eng", "nor", "fra")), "publication_year": 1900 + n}
        similar = [str(5000 + rng.randrange(books)) for _ in range(rng.randrange(3))]
        neighbors = {"author": by, "publisher": [house], "series": cycle, "similar_books": sorted(set(similar))}
        nodes[id] = {"features": {**features, "genres": ["novel", f"about {title.split()[0]}"]}, "neighbors": neighbors}
        for other in (*by, house, *cycle):
            back[other].append(id)

    def named(names: dict[str, str], feature: str) -> dict[str, Any]:
        return {id: {"features": {feature: name}, "neighbors": {"book": back[id]}} for id, name in names.items()}

    return {
        "book_nodes": nodes,
        "author_nodes": named(authors, "name"),
        "publisher_nodes": named(publishers, "name"),
        "series_nodes": named(series, "title"),
    }


def _pairs(count: int, rng: Random) -> list[tuple[str, str]]:
    return [(rng.choice(_NOUNS), rng.choice(_NOUNS)) for _ in range(count)]


def _questions(graph: dict[str, Any], rng: Random) -> Any:
    books, authors = graph["book_nodes"], graph["author_nodes"]
    houses, series = graph["publisher_nodes"], graph["series_nodes"]
    for id in rng.sample(sorted(books), 40):
        features, near = books[id]["features"], books[id]["neighbors"]
        title = features["title"]
        yield f"Who wrote the book {title}?", ", ".join(authors[one]["features"]["name"] for one in near["author"])
        yield f"In which language is {title} written?", features["language_code"]
        yield f"How many authors does {title} have?", str(len(near["author"]))
        yield f"How many books are similar to {title}?", str(len(near["similar_books"]))
        if near["series"]:
            yield f"To which series belongs {title}?", series[near["series"][0]]["features"]["title"]
    for id in rng.sample(sorted(authors), 20):
        mine = authors[id]["neighbors"]["book"]
        name = authors[id]["features"]["name"]
        if mine:
            yield f"Which books are by {name}?", ", ".join(books[one]["features"]["title"] for one in mine)
            firms = sorted({books[one]["neighbors"]["publisher"][0] for one in mine})
            yield f"Who publishes {name}'s books?", ", ".join(houses[one]["features"]["name"] for one in firms)
    for id in series:
        yield f"How many books are in {series[id]['features']['title']}?", str(len(series[id]["neighbors"]["book"]))
