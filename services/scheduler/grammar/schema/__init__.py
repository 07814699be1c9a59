"""JSON Schemas brought into a form whose every keyword a backend enforces; what cannot be brought there is refused."""
