"""What is trained: a small Llama, its tokenizer, and the data that the methods' models learn from."""
