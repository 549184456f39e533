"""RAG, one search and one answer: `nodes` and `facts` collect what the prompt shows, `method` fits it in and asks."""

from pipeline.methods.rag.method import RAG

__all__ = ["RAG"]
