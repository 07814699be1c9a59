"""The worker's gRPC doors."""
