"""A Llama in this process, on the CPU: `llm=embedded`."""
