"""Answers of the API: rows as documents, responses with their headers, problem documents."""
