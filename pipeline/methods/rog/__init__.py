"""RoG, Reasoning on Graphs: `plan` asks for relation paths, `instances` follows them, `read` answers from them."""

from pipeline.methods.rog.method import RoG

__all__ = ["RoG"]
