"""The report: one self-contained HTML page that compares the configurations of runs.

`data` reads the runs. `curves` and `recommendation` compare configurations. `labels`, `table`, `charts`, `pareto` and
`responses` produce the texts and charts. `build` assembles them into a `view`, and `page` renders it as HTML.
"""
