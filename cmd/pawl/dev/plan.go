// Package dev is `pawl dev`: a cluster on one machine, of real processes, for
// those who develop against one.
package dev

import (
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pawlbroker/pawl/cmd/pawl/cli"
)

// maxNodes is how many nodes there may be: more are not more of a cluster.
const maxNodes = 9

// The ports of node n are those of the first listener plus n-1, and plus these.
const (
	peerPorts = 100 // where nodes connect
	httpPorts = 200 // metrics and health
)

// maxVoters is how many of the nodes vote on the metadata log.
const maxVoters = 5

// node is one process of the cluster.
type node struct {
	ID      int    `json:"node"`
	PID     int    `json:"pid"`
	Listen  string `json:"listen"`
	Peers   string `json:"peers"`
	HTTP    string `json:"http"`
	DataDir string `json:"dataDir"`
}

// plan lays out n nodes, the first of which listens there.
func plan(n int, listen, dataDir string) ([]node, error) {
	if n < 1 || n > maxNodes {
		return nil, cli.Usage("--nodes %d: want 1 to %d", n, maxNodes)
	}
	host, text, err := net.SplitHostPort(listen)
	port, bad := strconv.ParseUint(text, 10, 16)
	if err != nil || bad != nil || host == "" {
		return nil, cli.Usage("--listen %s: want host:port, such as 127.0.0.1:9092", listen)
	}
	if last := int(port) + httpPorts + n - 1; port == 0 || last > 1<<16-1 {
		return nil, cli.Usage("--listen %s: the ports up to %d are needed, want a port from 1 to %d", listen, last, 1<<16-httpPorts-n)
	}
	nodes := make([]node, n)
	for i := range nodes {
		at := func(offset int) string { return net.JoinHostPort(host, strconv.Itoa(int(port)+offset+i)) }
		nodes[i] = node{
			ID: i + 1, Listen: at(0), Peers: at(peerPorts), HTTP: at(httpPorts),
			DataDir: filepath.Join(dataDir, strconv.Itoa(i+1)),
		}
	}
	return nodes, nil
}

// voters are those that vote: an odd number, since one more would survive no
// more.
func voters(nodes []node) []node {
	n := min(len(nodes), maxVoters)
	return nodes[:n-(n+1)%2]
}

// arguments are the command line of a node.
func arguments(nodes []node, i int, set []string) []string {
	n := &nodes[i]
	args := []string{"serve", "--node-id", strconv.Itoa(n.ID), "--data-dir", n.DataDir, "--listen", n.Listen, "--http", n.HTTP}
	if len(nodes) > 1 {
		var controllers []string
		for _, v := range voters(nodes) {
			controllers = append(controllers, fmt.Sprintf("%d@%s", v.ID, v.Peers))
		}
		args = append(args, "--peer-listen", n.Peers, "--controllers", strings.Join(controllers, ","))
		for _, d := range defaults(len(nodes)) {
			args = append(args, "--set", d)
		}
	}
	for _, s := range set {
		args = append(args, "--set", s)
	}
	return args
}

// defaults are what makes topics of a cluster outlive one of its nodes.
func defaults(nodes int) []string {
	replicas := min(nodes, 3)
	return []string{
		fmt.Sprintf("default.replication.factor=%d", replicas),
		fmt.Sprintf("min.insync.replicas=%d", replicas/2+replicas%2),
	}
}
