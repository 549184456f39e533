"""The checks of `kgqa doctor`: what a run needs, and how to fix what is wrong."""
