"""What only a card can show. `python -m tests.gpu.run` does all of it and writes the tables of RESULTS.md."""
