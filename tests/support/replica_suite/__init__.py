"""A broker that is told what to do by control requests, from outside: the parts of tests/replica_suite."""
