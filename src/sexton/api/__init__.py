"""HTTP over the store: one module per resource. It contains no scheduling rule and calls neither scheduler nor worker.

Every answer is a struct of `sexton.wire`; every failure is a problem document (RFC 9457).
"""
