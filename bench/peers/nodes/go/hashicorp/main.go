// A node of hashicorp/raft; three of these processes form a cluster. Default settings throughout: -store wal is raft-wal
// (an fsync per StoreLogs batch, it cannot be off), -store boltdb is raft-boltdb v2 (NoSync is off).
package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	wal "github.com/hashicorp/raft-wal"

	"peers/control"
)

// The state machine counts, as everybody's does.
type counter struct{ applied, bytes int }

func (c *counter) Apply(entry *raft.Log) any {
	c.applied++
	c.bytes += len(entry.Data)
	return c.applied
}
func (c *counter) Snapshot() (raft.FSMSnapshot, error) { return snapshot(c.applied), nil }
func (c *counter) Restore(state io.ReadCloser) error   { return state.Close() }

type snapshot int

func (s snapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := fmt.Fprint(sink, int(s)); err != nil {
		sink.Cancel()
		return err
	}
	return sink.Close()
}
func (s snapshot) Release() {}

type node struct{ raft *raft.Raft }

func (n *node) Leader() bool { return n.raft.State() == raft.Leader }

func (n *node) Propose(_ int, value []byte, timeout time.Duration) error {
	return n.raft.Apply(value, timeout).Error()
}

// The library groups the proposals that wait at its unbuffered channel, so each needs a caller of its own.
func (n *node) ProposeMany(_ int, value []byte, count int, timeout time.Duration) error {
	results := make(chan error, count)
	for range count {
		go func() { results <- n.raft.Apply(value, timeout).Error() }()
	}
	var failed error
	for range count {
		if err := <-results; err != nil {
			failed = err
		}
	}
	return failed
}

type store interface {
	raft.LogStore
	raft.StableStore
}

func open(kind, folder string, logger hclog.Logger) (store, error) {
	switch kind {
	case "boltdb":
		return raftboltdb.New(raftboltdb.Options{Path: filepath.Join(folder, "raft.db")})
	case "wal":
		inside := filepath.Join(folder, "wal")
		if err := os.MkdirAll(inside, 0o755); err != nil {
			return nil, err
		}
		return wal.Open(inside, wal.WithLogger(logger))
	}
	return nil, fmt.Errorf("no store %q; there are wal and boltdb", kind)
}

func main() {
	id := flag.Int("id", 0, "index of this node among the peers")
	peers := flag.String("peers", "", "host:port of each node's raft, separated by commas")
	address := flag.String("control", "", "host:port for the driver")
	folder := flag.String("dir", "", "where this node keeps its files")
	kind := flag.String("store", "wal", "wal or boltdb")
	flag.Parse()

	config := raft.DefaultConfig()
	config.LocalID = raft.ServerID(fmt.Sprint(*id))
	config.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: os.Stderr})
	control.Die(os.MkdirAll(*folder, 0o755))
	logs, err := open(*kind, *folder, config.Logger)
	control.Die(err)
	snapshots, err := raft.NewFileSnapshotStore(*folder, 1, io.Discard)
	control.Die(err)

	var members raft.Configuration
	for i, peer := range strings.Split(*peers, ",") {
		server := raft.Server{ID: raft.ServerID(fmt.Sprint(i)), Address: raft.ServerAddress(peer)}
		members.Servers = append(members.Servers, server)
	}
	own := string(members.Servers[*id].Address)
	advertised, err := net.ResolveTCPAddr("tcp", own)
	control.Die(err)
	transport, err := raft.NewTCPTransport(own, advertised, 3, 10*time.Second, io.Discard)
	control.Die(err)
	control.Die(raft.BootstrapCluster(config, logs, logs, snapshots, transport, members))
	instance, err := raft.NewRaft(config, &counter{}, logs, logs, snapshots, transport)
	control.Die(err)
	control.Die(control.Serve(*address, &node{instance}))
}
