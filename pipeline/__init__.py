"""Question answering over knowledge graphs with language models, evaluated at cluster scale.

`evaluate`, `sweep` and `score` do what the commands of the same names do. `open_run` opens a run folder. Use the other
public names to write a method or a dataset of your own. `__init__.pyi` lists all of them; a name is
imported when it is first used, so that `import pipeline` is fast.
"""

from importlib.metadata import version

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = version("kgqa-pipeline")
