"""`llm=embedded`: a Llama in this process, on the CPU."""
