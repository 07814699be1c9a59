"""How a request is spoken: our native door, our gRPC door, or anybody's OpenAI API."""
