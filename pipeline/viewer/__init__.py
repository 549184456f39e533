"""A local web application that shows the questions of runs: lists, comparisons, and the walk of one question."""
