"""How the shipped checkpoint is made: task generator, tokenizer, training loop."""
