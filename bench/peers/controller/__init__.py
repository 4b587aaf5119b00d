"""Controllers as processes, and what loads them from outside: scripted brokers, admin requests, observers."""
