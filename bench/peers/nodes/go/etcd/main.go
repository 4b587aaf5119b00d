// A node of etcd, embedded; three of these processes form a cluster. Default settings, but for the quota and the size of a
// transaction. The client is v3client: it calls the server in this process, without gRPC.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"google.golang.org/grpc/grpclog"

	"peers/control"
)

type node struct {
	etcd   *embed.Etcd
	client *clientv3.Client
}

func (n *node) Leader() bool { return n.etcd.Server.Leader() == n.etcd.Server.MemberID() }

func (n *node) Propose(worker int, value []byte, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_, err := n.client.Put(ctx, fmt.Sprintf("k%d", worker), string(value))
	return err
}

// One transaction is one entry of the log; its keys must differ.
func (n *node) ProposeMany(worker int, value []byte, count int, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	puts := make([]clientv3.Op, count)
	for i := range puts {
		puts[i] = clientv3.OpPut(fmt.Sprintf("k%d-%d", worker, i), string(value))
	}
	_, err := n.client.Txn(ctx).Then(puts...).Commit()
	return err
}

// Serializable reads ask nobody, and may be outdated; others are linearizable: a majority confirms the leader.
func (n *node) Read(alone bool, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var options []clientv3.OpOption
	if alone {
		options = append(options, clientv3.WithSerializable())
	}
	_, err := n.client.Get(ctx, "k0", options...)
	return err
}

func httpURL(address string) []url.URL {
	parsed, err := url.Parse("http://" + address)
	control.Die(err)
	return []url.URL{*parsed}
}

func main() {
	id := flag.Int("id", 0, "index of this node among the peers")
	peers := flag.String("peers", "", "host:port of each node's raft, separated by commas")
	client := flag.String("client", "", "host:port of this node's gRPC listener, which nobody calls")
	address := flag.String("control", "", "host:port for the driver")
	folder := flag.String("dir", "", "where this node keeps its files")
	flag.Parse()

	grpclog.SetLoggerV2(grpclog.NewLoggerV2(os.Stderr, os.Stderr, os.Stderr))
	config := embed.NewConfig()
	config.Name = fmt.Sprint("n", *id)
	config.Dir = *folder
	config.LogLevel = "error"
	config.QuotaBackendBytes = 8 << 30 // the default of 2 GiB would stop a long run
	config.MaxTxnOps = 1000
	var members []string
	for i, peer := range strings.Split(*peers, ",") {
		members = append(members, fmt.Sprintf("n%d=http://%s", i, peer))
		if i == *id {
			config.ListenPeerUrls = httpURL(peer)
		}
	}
	config.InitialCluster = strings.Join(members, ",")
	config.AdvertisePeerUrls = config.ListenPeerUrls
	config.ListenClientUrls = httpURL(*client)
	config.AdvertiseClientUrls = config.ListenClientUrls
	server, err := embed.StartEtcd(config)
	control.Die(err)
	<-server.Server.ReadyNotify()
	control.Die(control.Serve(*address, &node{server, v3client.New(server.Server)}))
}
