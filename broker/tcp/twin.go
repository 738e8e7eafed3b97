package tcp

import (
	"time"

	"github.com/pawlbroker/pawl/broker/wire"
)

// twinHeard is how long ago a connection was heard that shows that its process
// lives: much longer than a node is silent towards those that keep it in the
// cluster.
const twinHeard = 3 * time.Second

// meet lets a node in, and returns where another process is that said hello as the
// same node, if one was heard lately: two nodes were given one id, or one died a
// moment ago and is back. Both go on: which of them belongs to the cluster is not
// decided at the door.
func (s *Server) meet(c *conn, hello *wire.PeerHello) (twin string) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	c.met = hello
	c.heard.Store(now.UnixNano())
	first := c.id
	for _, other := range s.conns {
		if other.met == nil || other.met.Node != hello.Node || other.met.Incarnation == hello.Incarnation || other.id >= first {
			continue
		}
		if now.Sub(time.Unix(0, other.heard.Load())) < twinHeard {
			if first, twin = other.id, other.met.Address; twin == "" {
				twin = other.tcp.RemoteAddr().String()
			}
		}
	}
	return twin
}
