"""The nearest examples of a query: what it asks for, how near each is, how it fits an architecture."""
