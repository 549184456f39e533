"""ArG's training data: `collection` labels reference paths with `critic`, and `dataset` writes the texts to a file."""
