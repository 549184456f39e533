"""Servers with switchable faults, from the tests of their clients."""

from tests.kg.conftest import oxigraph_endpoint
from tests.llm.conftest import server, servers

__all__ = ["oxigraph_endpoint", "server", "servers"]
