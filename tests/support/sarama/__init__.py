"""The functional tests of sarama, a Kafka client written in Go, at clusters of Kafka and of ours."""
