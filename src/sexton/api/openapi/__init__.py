"""The OpenAPI document, made from what each call says of itself."""
