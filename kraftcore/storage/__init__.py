"""A node's files besides the log: identity, election state, snapshots, the lock."""
