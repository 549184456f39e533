"""Descriptions of graphs for the agent's prompts: a schema, and worked examples with invented facts.

See specification §6.2.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Domain:
    """The description of a kind of graph."""

    schema: str
    examples: tuple[str, str, str]


def _example(question: str, *steps: tuple[str, ...]) -> str:
    lines = [f"Question: {question}"]
    for number, (thought, action, *observation) in enumerate(steps, start=1):
        lines += [f"Thought {number}: {thought}", f"Action {number}: {action}"]
        lines += [f"Observation {number}: {text}" for text in observation]
    return "\n".join(lines)


_PAPERS_EXAMPLES = (
    _example(
        'Who wrote "Tidal Indexing of Sparse Archives"?',
        (
            "I need the paper first.",
            "RetrieveNode[Tidal Indexing of Sparse Archives]",
            'The node for "Tidal Indexing of Sparse Archives" is: p31.',
        ),
        (
            "Its authors are its author neighbours.",
            "NeighbourCheck[p31, author]",
            "The author neighbours of p31 are: [a7, a9].",
        ),
        (
            "I need their names, not their ids.",
            "NodeFeature[a7, name] NodeFeature[a9, name]",
            "The name of a7 is: Ilka Venn. The name of a9 is: Joss Marlo.",
        ),
        ("Both names are known.", "Finish[Ilka Venn, Joss Marlo]"),
    ),
    _example(
        "How many papers cite Slow Lattices in Cold Harbours?",
        (
            "I look for the paper.",
            "RetrieveNode[Slow Lattices in Cold Harbours]",
            'The node for "Slow Lattices in Cold Harbours" is: p80.',
        ),
        (
            "What cites it are its cited_by neighbours, and only their number is asked for.",
            "NodeDegree[p80, cited_by]",
            "The number of cited_by neighbours of p80 is: 17.",
        ),
        ("That is the answer.", "Finish[17]"),
    ),
    _example(
        "At which venue did Orla Quist publish in 1997?",
        ("I look for the author.", "RetrieveNode[Orla Quist]", 'The node for "Orla Quist" is: a44.'),
        ("Her papers come next.", "NeighbourCheck[a44, paper]", "The paper neighbours of a44 are: [p5, p6]."),
        (
            "I need the year and the venue of each.",
            "NodeFeature[p5, year] NodeFeature[p6, year] NeighbourCheck[p5, venue] NeighbourCheck[p6, venue]",
            "The year of p5 is: 1997. The year of p6 is: 2003. The venue neighbours of p5 are: [v2]. "
            "The venue neighbours of p6 are: [v8].",
        ),
        (
            "The paper of 1997 is p5, so I need the name of v2.",
            "NodeFeature[v2, name]",
            "The name of v2 is: Annals of Harbour Science.",
        ),
        ("That is the venue.", "Finish[Annals of Harbour Science]"),
    ),
)

DOMAINS: dict[str, Domain] = {
    "amazon": Domain(
        "Nodes are items and brands. An item has the features title, description, price, img and category, and the\n"
        "neighbour types also_viewed_item, buy_after_viewing_item, also_bought_item, bought_together_item and brand.\n"
        "A brand has the feature name and the neighbour type item.",
        (
            _example(
                "Which brand makes the Zephyline 40 Camping Lantern?",
                (
                    "I look for the item.",
                    "RetrieveNode[Zephyline 40 Camping Lantern]",
                    'The node for "Zephyline 40 Camping Lantern" is: B00QZ1.',
                ),
                (
                    "Its brand is a neighbour.",
                    "NeighbourCheck[B00QZ1, brand]",
                    "The brand neighbours of B00QZ1 are: [brand_12].",
                ),
                ("I need the name of the brand.", "NodeFeature[brand_12, name]", "The name of brand_12 is: Zephyline."),
                ("That answers it.", "Finish[Zephyline]"),
            ),
            _example(
                "How many items are often bought together with the Mossgate Kettle [Steel, 2 l]?",
                (
                    "I look for the item.",
                    "RetrieveNode[Mossgate Kettle [Steel, 2 l]]",
                    'The node for "Mossgate Kettle [Steel, 2 l]" is: B00KT4.',
                ),
                (
                    "Only a number is asked for.",
                    "NodeDegree[B00KT4, bought_together_item]",
                    "The number of bought_together_item neighbours of B00KT4 is: 3.",
                ),
                ("That is the number.", "Finish[3]"),
            ),
            _example(
                "What do items cost that people also view when they look at the Pell Reading Lamp?",
                (
                    "I look for the lamp.",
                    "RetrieveNode[Pell Reading Lamp]",
                    'The node for "Pell Reading Lamp" is: B00PL9.',
                ),
                (
                    "The items viewed with it are neighbours.",
                    "NeighbourCheck[B00PL9, also_viewed_item]",
                    "The also_viewed_item neighbours of B00PL9 are: [B00PL2, B00PL5].",
                ),
                (
                    "Now their prices.",
                    "NodeFeature[B00PL2, price] NodeFeature[B00PL5, price]",
                    "The price of B00PL2 is: 18.5. The price of B00PL5 is: 22.",
                ),
                ("Both prices are known.", "Finish[18.5, 22]"),
            ),
        ),
    ),
    "biomedical": Domain(
        "Nodes are Anatomy, Biological_Process, Cellular_Component, Compound, Disease, Gene, Molecular_Function,\n"
        "Pathway, Pharmacologic_Class, Side_Effect and Symptom nodes; each has the feature name. A neighbour type is\n"
        "written Source-verb-Target, for instance Disease-presents-Symptom, Compound-treats-Disease,\n"
        "Compound-causes-Side Effect, Disease-localizes-Anatomy, Gene-participates-Pathway, Anatomy-expresses-Gene;\n"
        "edges that hold both ways are listed under the same name at both ends.",
        (
            _example(
                "Which symptoms does tallow fever present?",
                ("I look for the disease.", "RetrieveNode[tallow fever]", 'The node for "tallow fever" is: DOID:771.'),
                (
                    "Symptoms are its Disease-presents-Symptom neighbours.",
                    "NeighbourCheck[DOID:771, Disease-presents-Symptom]",
                    "The Disease-presents-Symptom neighbours of DOID:771 are: [D3001, D3002].",
                ),
                (
                    "I need their names.",
                    "NodeFeature[D3001, name] NodeFeature[D3002, name]",
                    "The name of D3001 is: Dry Palms. The name of D3002 is: Night Humming.",
                ),
                ("Both are known.", "Finish[Dry Palms, Night Humming]"),
            ),
            _example(
                "How many side effects does the compound orvaline cause?",
                ("I look for the compound.", "RetrieveNode[orvaline]", 'The node for "orvaline" is: DB9901.'),
                (
                    "The number of side effects is a degree.",
                    "NodeDegree[DB9901, Compound-causes-Side Effect]",
                    "The number of Compound-causes-Side Effect neighbours of DB9901 is: 12.",
                ),
                ("That is the answer.", "Finish[12]"),
            ),
            _example(
                "Where in the body is the disease located that orvaline treats?",
                ("I look for the compound.", "RetrieveNode[orvaline]", 'The node for "orvaline" is: DB9901.'),
                (
                    "The disease is what it treats.",
                    "NeighbourCheck[DB9901, Compound-treats-Disease]",
                    "The Compound-treats-Disease neighbours of DB9901 are: [DOID:771].",
                ),
                (
                    "Then the anatomy of the disease.",
                    "NeighbourCheck[DOID:771, Disease-localizes-Anatomy]",
                    "The Disease-localizes-Anatomy neighbours of DOID:771 are: [UBERON:55].",
                ),
                ("I need its name.", "NodeFeature[UBERON:55, name]", "The name of UBERON:55 is: inner wrist."),
                ("That is the place.", "Finish[inner wrist]"),
            ),
        ),
    ),
    "dblp": Domain(
        "Nodes are papers, authors and venues. A paper has the features title, abstract, keywords, lang and year, and\n"
        "the neighbour types author, venue, reference and cited_by. An author has the features name and organization\n"
        "and the neighbour type paper. A venue has the feature name and the neighbour type paper.",
        _PAPERS_EXAMPLES,
    ),
    "maple": Domain(
        "Nodes are papers, authors and venues. A paper has the features title, abstract, year and label, and the\n"
        "neighbour types author, venue, reference and cited_by. An author has the feature name and the neighbour type\n"
        "paper. A venue has the feature name and the neighbour type paper.",
        _PAPERS_EXAMPLES,
    ),
    "goodreads": Domain(
        "Nodes are books, authors, publishers and series. A book has the features country_code, language_code,\n"
        "is_ebook, title, description, format, num_pages, publication_year, url, popular_shelves and genres, and the\n"
        "neighbour types author, publisher, series and similar_books. Authors and publishers have the feature name,\n"
        "series have title and description; the neighbour type of all three is book.",
        (
            _example(
                "Who wrote The Glass Quay?",
                ("I look for the book.", "RetrieveNode[The Glass Quay]", 'The node for "The Glass Quay" is: 5012.'),
                (
                    "The author is a neighbour.",
                    "NeighbourCheck[5012, author]",
                    "The author neighbours of 5012 are: [881].",
                ),
                ("I need the name.", "NodeFeature[881, name]", "The name of 881 is: Ysolde Crane."),
                ("That is the author.", "Finish[Ysolde Crane]"),
            ),
            _example(
                "How many books did the publisher Lanternhouse bring out?",
                ("I look for the publisher.", "RetrieveNode[Lanternhouse]", 'The node for "Lanternhouse" is: pub_6.'),
                (
                    "The number of its books is a degree.",
                    "NodeDegree[pub_6, book]",
                    "The number of book neighbours of pub_6 is: 41.",
                ),
                ("That is the number.", "Finish[41]"),
            ),
            _example(
                "In what language is the book that is similar to Winter Ferry?",
                ("I look for the book.", "RetrieveNode[Winter Ferry]", 'The node for "Winter Ferry" is: 7730.'),
                (
                    "Then what is similar to it.",
                    "NeighbourCheck[7730, similar_books]",
                    "The similar_books neighbours of 7730 are: [7731].",
                ),
                (
                    "Its language is a feature.",
                    "NodeFeature[7731, language_code]",
                    "The language_code of 7731 is: nor.",
                ),
                ("That is the language.", "Finish[nor]"),
            ),
        ),
    ),
    "legal": Domain(
        "Nodes are opinions, opinion clusters, dockets and courts. An opinion has the feature plain_text and the\n"
        "neighbour types opinion_cluster, reference and cited_by. An opinion cluster has the features syllabus,\n"
        "judges, case_name and attorneys and the neighbour types opinion and docket. A docket has the features\n"
        "pacer_case_id and case_name and the neighbour types opinion_cluster and court.\n"
        "A court has the features full_name, start_date, end_date and citation_string and the neighbour type docket.",
        (
            _example(
                "When did the Harbour Court of Quessland start?",
                (
                    "I look for the court.",
                    "RetrieveNode[Harbour Court of Quessland]",
                    'The node for "Harbour Court of Quessland" is: hcq.',
                ),
                ("The start is a feature.", "NodeFeature[hcq, start_date]", "The start_date of hcq is: 1802-05-01."),
                ("That is the date.", "Finish[1802-05-01]"),
            ),
            _example(
                "How many opinions cite the opinion that begins 'The lease of the mill was void'?",
                (
                    "I look for the opinion.",
                    "RetrieveNode[The lease of the mill was void]",
                    'The node for "The lease of the mill was void" is: op-64.',
                ),
                (
                    "The number of citing opinions is a degree.",
                    "NodeDegree[op-64, cited_by]",
                    "The number of cited_by neighbours of op-64 is: 5.",
                ),
                ("That is the number.", "Finish[5]"),
            ),
            _example(
                "Who were the judges of the case with the opinion 'Salvage is owed to whoever tows the wreck'?",
                (
                    "I look for the opinion.",
                    "RetrieveNode[Salvage is owed to whoever tows the wreck]",
                    'The node for "Salvage is owed to whoever tows the wreck" is: op-9.',
                ),
                (
                    "The judges belong to its cluster.",
                    "NeighbourCheck[op-9, opinion_cluster]",
                    "The opinion_cluster neighbours of op-9 are: [opc-3].",
                ),
                ("Now the judges.", "NodeFeature[opc-3, judges]", "The judges of opc-3 is: Marl, Tobin."),
                ("These are the judges.", "Finish[Marl, Tobin]"),
            ),
        ),
    ),
    "triples": Domain(
        "Nodes are entities, and unnamed nodes that hold a fact of several parts together. An edge has a relation,\n"
        "and can be followed in both directions. Relations[id] lists the relations at a node.\n"
        "A list shows ids, each with the name behind it where it has one; values such as dates stand in quotes.\n"
        "In an action an id that holds a comma, a bracket or a blank is written in double quotes. Several answers are\n"
        'written as a list: Finish[["A", "B"]].',
        (
            _example(
                "Who drew up the plans for the Ondrel Bridge?",
                ("I look for the bridge.", "RetrieveNode[Ondrel Bridge]", 'The node for "Ondrel Bridge" is: m.0q1.'),
                (
                    "I see which relations it has.",
                    "Relations[m.0q1]",
                    "The relations of m.0q1 are: [architecture.structure.architect, structure.opened].",
                ),
                (
                    "Whoever made the plans is the architect.",
                    "NeighbourCheck[m.0q1, architecture.structure.architect]",
                    'The architecture.structure.architect neighbours of m.0q1 are: [m.0q7 "Odo Marrick"].',
                ),
                ("The architect has a name.", "Finish[Odo Marrick]"),
            ),
            _example(
                "What movies has Lirae Dobson played in?",
                ("I look for the actress.", "RetrieveNode[Lirae Dobson]", 'The node for "Lirae Dobson" is: m.0l5.'),
                (
                    "A role is an unnamed node between actor and film.",
                    "NeighbourCheck[m.0l5, film.actor.film]",
                    "The film.actor.film neighbours of m.0l5 are: [m.0r1, m.0r2].",
                ),
                (
                    "From each role I go on to its film.",
                    "NeighbourCheck[m.0r1, film.performance.film] NeighbourCheck[m.0r2, film.performance.film]",
                    'The film.performance.film neighbours of m.0r1 are: [m.0f1 "The Salt Road"]. '
                    'The film.performance.film neighbours of m.0r2 are: [m.0f2 "Nine Lanterns"].',
                ),
                ("Both films are known.", 'Finish[["The Salt Road", "Nine Lanterns"]]'),
            ),
            _example(
                "How many films did the director of Ferry, Winter and Snow make?",
                (
                    "I look for the film.",
                    "RetrieveNode[Ferry, Winter and Snow]",
                    'The node for "Ferry, Winter and Snow" is: "Ferry, Winter and Snow".',
                ),
                (
                    "Then its director.",
                    'NeighbourCheck["Ferry, Winter and Snow", directed_by]',
                    'The directed_by neighbours of "Ferry, Winter and Snow" are: ["Edda Orsa"].',
                ),
                (
                    "Only the number of films is asked for.",
                    'NodeDegree["Edda Orsa", directed_by]',
                    'The number of directed_by neighbours of "Edda Orsa" is: 6.',
                ),
                ("That is the number.", "Finish[6]"),
            ),
        ),
    ),
}
"""The domains of GRBench, by the first part of `Question.meta["domain"]`, and `triples` for every other graph."""

_UNKNOWN = Domain(
    "Nodes have features and lists of neighbours by type. A wrong name is answered with those that there are.",
    DOMAINS["goodreads"].examples,
)


def describe(domain: str) -> Domain:
    """Return the description of a domain, or a general one for an unknown domain."""
    return DOMAINS.get(domain, _UNKNOWN)
