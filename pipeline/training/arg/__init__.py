"""What ArG's generator learns from: `collection` labels reference paths for `dataset`, and `critic` is who labels."""
