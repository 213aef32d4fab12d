"""The OpenAPI document, made from the declaration of each operation."""
