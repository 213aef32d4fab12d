"""What the API answers: rows as documents, responses with their headers, problem documents."""
