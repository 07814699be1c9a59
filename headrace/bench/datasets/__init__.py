"""What is asked: every dataset gives the same requests for the same seed, byte for byte."""
