package config

import (
	"encoding/base64"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/pawlbroker/pawl/broker/metadata"
)

// listener returns host:port of the one client listener of a list such as
// PLAINTEXT://host:9092,CONTROLLER://host:9093, or "" if there is none.
func (l *loader) listener(key string) (addr string, err error) {
	text := l.text(key)
	if text == "" {
		return "", nil
	}
	from := "default"
	if s, ok := l.values[key]; ok {
		from = s.from
	}
	controllers := strings.FieldsFunc(l.text("controller.listener.names"), func(r rune) bool { return r == ',' || r == ' ' })
	for _, one := range strings.Split(text, ",") {
		name, at, ok := strings.Cut(strings.TrimSpace(one), "://")
		if !ok {
			return "", fmt.Errorf("%s: %w: %s=%s: want NAME://host:port", from, ErrValue, key, text)
		}
		if err := hostPort(at); err != nil {
			return "", fmt.Errorf("%s: %w: %s=%s: %w", from, ErrValue, key, text, err)
		}
		if slices.Contains(controllers, name) {
			continue // Kafka's controllers have their own; here pawl.peer.listen does that
		}
		if protocol := l.protocol(name); protocol != "PLAINTEXT" {
			return "", fmt.Errorf("%s: %w: %s: the listener %s speaks %s; only PLAINTEXT is served", from, ErrUnsupported, key, name, protocol)
		}
		if addr != "" {
			return "", fmt.Errorf("%s: %w: %s has more than one listener for clients; name one", from, ErrUnsupported, key)
		}
		addr = at
	}
	return addr, nil
}

// protocol is what listener.security.protocol.map says of a listener, or its
// own name.
func (l *loader) protocol(listener string) string {
	for _, pair := range strings.Split(l.text("listener.security.protocol.map"), ",") {
		if name, protocol, ok := strings.Cut(strings.TrimSpace(pair), ":"); ok && strings.EqualFold(name, listener) {
			return strings.ToUpper(protocol)
		}
	}
	return strings.ToUpper(listener)
}

// hostPort checks host:port; the host may be empty.
func hostPort(addr string) error {
	if addr == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%q, want host:port", addr)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("port %q, want 0 to 65535", port)
	}
	return nil
}

// place checks a host:port that can be connected to.
func place(addr string) error {
	if addr == "" {
		return nil
	}
	_, _, err := splitPlace(addr)
	return err
}

// splitPlace is the host and the port of an address that can be connected to.
func splitPlace(addr string) (host string, port int32, err error) {
	if err := hostPort(addr); err != nil {
		return "", 0, err
	}
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("%q, want host:port", addr)
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if ip := net.ParseIP(host); err != nil || n == 0 || host == "" || ip != nil && ip.IsUnspecified() {
		return "", 0, fmt.Errorf("%q, want a host and a port that others can connect to", addr)
	}
	return host, int32(n), nil
}

// parseControllers reads 1@host:port,2@host:port.
func parseControllers(text string) (controllers []Controller, err error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	for _, one := range strings.Split(text, ",") {
		id, addr, ok := strings.Cut(strings.TrimSpace(one), "@")
		n, err := strconv.ParseInt(id, 10, 32)
		if !ok || err != nil || n < 0 || addr == "" {
			return nil, fmt.Errorf("%q, want id@host:port, separated by commas", one)
		}
		host, port, err := splitPlace(addr)
		if err != nil {
			return nil, err
		}
		for _, c := range controllers {
			if c.ID == metadata.NodeID(n) {
				return nil, fmt.Errorf("node %d is named twice", n)
			}
			if c.Host == host && c.Port == port {
				return nil, fmt.Errorf("nodes %d and %d are named at one place, %s", c.ID, n, addr)
			}
		}
		controllers = append(controllers, Controller{metadata.NodeID(n), host, port})
	}
	if len(controllers) > maxControllers {
		return nil, fmt.Errorf("%d controllers, want at most %d: what is decided must be on the disks of most of them", len(controllers), maxControllers)
	}
	return controllers, nil
}

// maxControllers is how many nodes may vote on the metadata log.
const maxControllers = 9

// clusterID checks a cluster's id.
func clusterID(id string) error {
	if p, err := base64.RawURLEncoding.DecodeString(id); id != "" && (err != nil || len(p) != 16) {
		return fmt.Errorf("%q, want 22 characters of URL-safe base64, such as %s", id, "MkU3OEVBNTcwNTJENDM2Qg")
	}
	return nil
}

// checkCluster finds out whether the node can be reached by the others.
func (s *Serve) checkCluster() error {
	if len(s.Controllers) == 0 || s.PeerListen != "" {
		return nil
	}
	for _, c := range s.Controllers {
		if c.ID == s.NodeID {
			return nil
		}
	}
	return fmt.Errorf("%w: node %d is none of the controllers, so it must be told where other nodes connect: set --peer-listen", ErrValue, s.NodeID)
}

// doubts are lines about what works and is hardly meant.
func (s *Serve) doubts() (lines []string) {
	if n := len(s.Controllers); n > 0 && n%2 == 0 {
		lines = append(lines, fmt.Sprintf("%d controllers survive the loss of no more of them than %d do: name an odd number", n, n-1))
	}
	if least := s.Broker.Int("min.insync.replicas"); least > int64(s.DefaultReplicationFactor) && least > 1 {
		lines = append(lines, fmt.Sprintf("min.insync.replicas is %d and default.replication.factor %d: a topic with fewer replicas than the former needs all of them in sync for acks=all",
			least, s.DefaultReplicationFactor))
	}
	return lines
}
