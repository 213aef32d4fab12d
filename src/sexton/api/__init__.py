"""HTTP over the store: one module per resource. It holds no rule of scheduling and calls neither scheduler nor worker.

Every answer is a struct of `sexton.wire`; every failure is a problem document (RFC 9457).
"""
