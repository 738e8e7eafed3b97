package peer

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"time"
)

// Silence is how long a connection between nodes lasts after the other machine
// has fallen silent: with probes when there is nothing to say, and without
// acknowledgements when there is. By default it would be minutes, for which a
// network that works again would go unnoticed.
const Silence = 5 * time.Second

const probes = 4

var keepAlive = net.KeepAliveConfig{
	Enable:   true,
	Idle:     Silence / (probes + 1),
	Interval: Silence / (probes + 1),
	Count:    probes,
}

// Listen listens for other nodes.
func Listen(addr string) (*net.TCPListener, error) {
	cfg := net.ListenConfig{KeepAliveConfig: keepAlive, Control: func(network, addr string, c syscall.RawConn) error {
		return tune(context.Background(), network, addr, c) // connections take it over from their listener
	}}
	l, err := cfg.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for nodes on %s: %w", addr, err)
	}
	return l.(*net.TCPListener), nil
}
