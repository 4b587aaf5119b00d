"""What a node keeps on disk besides the log: identity, election state, snapshots, the lock."""
