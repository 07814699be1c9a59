"""Custom logit processors: code of the operator that changes a row's logits, by a name that requests may give."""
