"""The report: one self-contained HTML page that compares the configurations of runs.

`data` reads the runs. `curves` and `recommendation` compare configurations. `labels`, `configuration_table`, `charts`,
`pareto` and `response_curves` produce the texts and charts. `build` assembles them into a `view`, and `page` renders it
as HTML.
"""
