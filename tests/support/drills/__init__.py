"""Whole Kafka clusters at work on kraftcore controllers, disturbed, and what must hold afterwards."""
