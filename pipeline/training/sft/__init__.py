"""Supervised fine-tuning of a Llama, full or with an adapter, on Ray Train (specification §7.2, §7.3)."""
