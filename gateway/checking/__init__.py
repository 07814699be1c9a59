"""Whether an answer is what its JSON schema asks for: checked once it is whole, for clients that ask for that."""
