"""What every process must agree on about text: bytes of token ids, UTF-8, stop strings, tokenizer identity."""
