"""Ways out of a run: tables as files (`table_files`), and runs in the formats and services of other tools (`formats`)."""
