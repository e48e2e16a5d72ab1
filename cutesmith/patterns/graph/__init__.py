"""The ground floor: nodes, their operations, dtypes and shapes, and the builder that simplifies while it builds."""
