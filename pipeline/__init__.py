"""Question answering over knowledge graphs with language models, evaluated at cluster scale.

`evaluate`, `sweep` and `score` do what the commands of the same names do; `open_run` reads a finished run. The other
public names are what a method or a data set of your own is written with. `__init__.pyi` lists all of them; a name is
imported when it is first used, so that `import pipeline` is fast.
"""

from importlib.metadata import version

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = version("kgqa-pipeline")
