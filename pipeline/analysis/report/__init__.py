"""The report: the points of runs, compared on one page that needs nothing but a browser.

`measured` reads the runs; `curves` and `choice` compare their points; `words`, `table`, `charts`, `quality` and
`responses` say and draw what they found; `build` puts it together as a `view`, and `page` writes that as HTML.
"""
