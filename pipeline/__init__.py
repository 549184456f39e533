"""Question answering over knowledge graphs with language models, at cluster scale."""
