"""Training: data collection, supervised fine-tuning, and small Llamas with their tokenizer."""
