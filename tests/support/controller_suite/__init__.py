"""Parts of the black-box suite in tests/controller_suite: scripted brokers and admin clients of a controller."""
