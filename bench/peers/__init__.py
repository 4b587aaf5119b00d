"""The contenders: one module each, and one function for each operation they can do."""
