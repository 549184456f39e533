"""Servers whose faults are at hand, from the tests of the clients that they are servers of."""

from tests.kg.conftest import oxigraph_endpoint
from tests.llm.conftest import server, servers

__all__ = ["oxigraph_endpoint", "server", "servers"]
