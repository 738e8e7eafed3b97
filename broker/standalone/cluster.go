package standalone

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/pawlbroker/pawl/broker/host"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/peer"
	"github.com/pawlbroker/pawl/broker/wire"
)

// Cluster is what a broker is told of the cluster it belongs to. The zero value
// is a broker that is a cluster of its own.
type Cluster struct {
	// Controllers are the nodes that vote in the metadata quorum; every node is
	// told the same ones. Kafka: controller.quorum.voters.
	Controllers []wire.Peer
	// Listen is where other nodes connect. Empty is the place that Controllers
	// has for this node.
	Listen string
	// Host and Port are where other nodes are told to connect to. If Port is 0
	// they are told the place that Controllers has for this node, or Listen.
	Host string
	Port int32
}

// alone reports whether the node has no others: it is the only controller, and
// listens for nobody.
func (c *Cluster) alone(self metadata.NodeID) bool {
	switch len(c.Controllers) {
	case 0:
		return c.Listen == ""
	case 1:
		return c.Controllers[0].ID == self && c.Listen == ""
	}
	return false
}

// own is the place that Controllers has for a node.
func (c *Cluster) own(self metadata.NodeID) (wire.Peer, bool) {
	i := slices.IndexFunc(c.Controllers, func(p wire.Peer) bool { return p.ID == self })
	if i < 0 {
		return wire.Peer{}, false
	}
	return c.Controllers[i], true
}

// clusterID is what all nodes with these controllers take for the cluster's id
// unless they are told another; empty if there is nobody to agree with.
func (c *Cluster) clusterID() string {
	if len(c.Controllers) < 2 {
		return ""
	}
	told := make([]string, 0, len(c.Controllers))
	for _, p := range slices.SortedFunc(slices.Values(c.Controllers), func(a, b wire.Peer) int { return cmp.Compare(a.ID, b.ID) }) {
		told = append(told, p.String())
	}
	return host.DeriveClusterID(strings.Join(told, ","))
}

// listen opens the listener for nodes and settles where they are told to
// connect.
func (c *Cluster) listen(self metadata.NodeID) (*net.TCPListener, error) {
	own, named := c.own(self)
	at := c.Listen
	if at == "" {
		if !named {
			return nil, fmt.Errorf("node %d is none of the controllers, so it must be told where other nodes connect: set --peer-listen", self)
		}
		at = net.JoinHostPort(own.Host, strconv.Itoa(int(own.Port)))
	}
	l, err := peer.Listen(at)
	if err != nil {
		return nil, fmt.Errorf("%w; set --peer-listen to an address of this machine", err)
	}
	if c.Port != 0 {
		return l, nil
	}
	if named {
		c.Host, c.Port = own.Host, own.Port
		return l, nil
	}
	if c.Host, c.Port, err = reachable(at, l.Addr()); err != nil {
		l.Close()
		return nil, fmt.Errorf("other nodes cannot be told to connect to %s: %w; set --peer-advertise", at, err)
	}
	return l, nil
}

// reachable is where a listener is that was asked for as asked: a host that is
// named, and the port that it got.
func reachable(asked string, got net.Addr) (host string, port int32, err error) {
	host, _, err = net.SplitHostPort(asked)
	if err != nil {
		return "", 0, err
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return "", 0, fmt.Errorf("it is every address of this machine and none that others know")
	}
	return host, int32(got.(*net.TCPAddr).Port), nil
}

// attr is the cluster as it is logged.
func (c *Cluster) attr(l net.Listener) slog.Attr {
	controllers := make([]string, len(c.Controllers))
	for i, p := range c.Controllers {
		controllers[i] = p.String()
	}
	return slog.Group("peers", slog.String("listener", l.Addr().String()),
		slog.String("advertised", net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))), slog.String("controllers", strings.Join(controllers, ",")))
}
