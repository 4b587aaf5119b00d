// Package control is the protocol every node of the benchmark speaks: one JSON object a line over TCP, one answer a line.
//
//	{"op":"status"}                    -> {"leader":bool}
//	{"op":"try","timeout_ms":100}      -> {"ok":bool}: one proposal, awaited until it is committed and applied here
//	{"op":"load","value_bytes":100,"in_flight":64,"batch":1,"read":"","warm_s":1,"measure_s":5}
//	                                   -> {"calls","errors","seconds","p50_us","p99_us"}
//
// A load is a closed loop of in_flight callers inside the process asked; each awaits its own proposal, or its own batch of
// proposals handed over together. With "read" it reads instead: "asks", linearizable by asking a majority, or "alone",
// without asking anybody. {"unsupported":"reason"} answers a load that the library has no call for.
package control

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ProposalTimeout is how long a proposal of a load may take.
const ProposalTimeout = 10 * time.Second

// Request is one line of the driver.
type Request struct {
	Op         string  `json:"op"`
	TimeoutMs  int     `json:"timeout_ms"`
	ValueBytes int     `json:"value_bytes"`
	InFlight   int     `json:"in_flight"`
	Batch      int     `json:"batch"`
	Read       string  `json:"read"`
	WarmS      float64 `json:"warm_s"`
	MeasureS   float64 `json:"measure_s"`
}

// Node is a member of the cluster.
type Node interface {
	Leader() bool
	// Propose commits one value and waits until it is applied here; worker numbers the caller.
	Propose(worker int, value []byte, timeout time.Duration) error
	// ProposeMany commits count copies of a value handed over together.
	ProposeMany(worker int, value []byte, count int, timeout time.Duration) error
}

// Reader is a node that can be read from.
type Reader interface {
	// Read reads one value; alone: without asking other nodes.
	Read(alone bool, timeout time.Duration) error
}

// Load runs a closed loop and measures its second part.
func Load(node Node, request Request) map[string]any {
	reader, reads := node.(Reader)
	if request.Read != "" && !reads {
		return map[string]any{"unsupported": "it has no such read"}
	}
	value := make([]byte, request.ValueBytes)
	for i := range value {
		value[i] = byte(i*7 + 1)
	}
	var stopped, measuring atomic.Bool
	var errors atomic.Int64
	var mutex sync.Mutex
	var latencies []time.Duration
	var group sync.WaitGroup
	for worker := range request.InFlight {
		group.Add(1)
		go func() {
			defer group.Done()
			mine := make([]time.Duration, 0, 4096)
			for !stopped.Load() {
				begin := time.Now()
				var err error
				if request.Read != "" {
					err = reader.Read(request.Read == "alone", ProposalTimeout)
				} else {
					err = propose(node, worker, value, request.Batch)
				}
				took := time.Since(begin)
				if err != nil {
					if errors.Add(1) < 4 {
						fmt.Fprintln(os.Stderr, "call failed:", err)
					}
					time.Sleep(time.Millisecond)
				} else if measuring.Load() && !stopped.Load() {
					mine = append(mine, took)
				}
			}
			mutex.Lock()
			latencies = append(latencies, mine...)
			mutex.Unlock()
		}()
	}
	time.Sleep(seconds(request.WarmS))
	begin := time.Now()
	measuring.Store(true)
	time.Sleep(seconds(request.MeasureS))
	stopped.Store(true)
	elapsed := time.Since(begin)
	group.Wait()
	slices.Sort(latencies)
	answer := map[string]any{"calls": len(latencies), "errors": errors.Load(), "seconds": elapsed.Seconds()}
	if len(latencies) > 0 {
		quantile := func(share float64) float64 {
			return float64(latencies[int(share*float64(len(latencies)-1))].Nanoseconds()) / 1e3
		}
		answer["p50_us"], answer["p99_us"] = quantile(0.5), quantile(0.99)
	}
	return answer
}

func propose(node Node, worker int, value []byte, count int) error {
	if count == 1 {
		return node.Propose(worker, value, ProposalTimeout)
	}
	return node.ProposeMany(worker, value, count, ProposalTimeout)
}

func seconds(count float64) time.Duration { return time.Duration(count * float64(time.Second)) }

// Serve answers the driver on address until the process ends.
func Serve(address string, node Node) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go answer(connection, node)
	}
}

func answer(connection net.Conn, node Node) {
	defer connection.Close()
	lines := bufio.NewScanner(connection)
	for lines.Scan() {
		var request Request
		if err := json.Unmarshal(lines.Bytes(), &request); err != nil {
			return
		}
		var result map[string]any
		switch request.Op {
		case "status":
			result = map[string]any{"leader": node.Leader()}
		case "load":
			result = Load(node, request)
		case "try":
			err := node.Propose(0, []byte("try"), time.Duration(request.TimeoutMs)*time.Millisecond)
			result = map[string]any{"ok": err == nil}
		}
		line, err := json.Marshal(result)
		if err != nil {
			return
		}
		if _, err := connection.Write(append(line, '\n')); err != nil {
			return
		}
	}
}

// Die ends the process with the error, if there is one.
func Die(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
