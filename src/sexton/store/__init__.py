"""PostgreSQL: named `.sql` files beside small modules that call them, and the migrations.

The only place that knows a column or a driver type. Every function takes a connection and a batch; it decides nothing
that the domain could decide.
"""
