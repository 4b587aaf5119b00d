"""Messages that travel or rest inside others: headers, control records, principals, group metadata, quorum state."""
