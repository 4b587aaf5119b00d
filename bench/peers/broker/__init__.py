"""Brokers from outside: clusters of three and a controller, and the clients that load them."""
