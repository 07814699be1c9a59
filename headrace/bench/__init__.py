"""`headrace bench`: a load generator whose every figure can be recomputed from its records."""
