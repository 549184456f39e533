"""Ways out of a run: tables as files (`table_files`), and runs for other tools and services (`formats`)."""
