"""Golden runs: call keys and answers of every method, recorded so that a refactor can be held against them."""
