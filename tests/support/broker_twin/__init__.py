"""One random script of clients' requests on a broker of Kafka and on one of ours; every answer is compared."""
