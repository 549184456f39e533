"""Lets `kgqa` find the user's own configuration choices: in `./conf`, or in the folders that `KGQA_CONF` names."""

from __future__ import annotations

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin


class UserChoices(SearchPathPlugin):
    """Adds the user's folders behind those of the project. It leaves other Hydra applications alone."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append the folders if the main one is the project's."""
        from pipeline.config import conf_dir, user_conf_dirs  # Hydra imports all plugins for each of its commands

        main = [each.path for each in search_path.get_path() if each.provider == "main"]
        if main == [str(conf_dir())]:
            for folder in user_conf_dirs():
                search_path.append("user", f"file://{folder}")
