"""Between the contract's messages and the scheduler's values. Nothing else of the worker knows both."""
