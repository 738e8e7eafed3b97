package config

import (
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
		if err := hostPort(addr); err != nil {
			return nil, err
		}
		for _, c := range controllers {
			if c.ID == metadata.NodeID(n) {
				return nil, fmt.Errorf("node %d is named twice", n)
			}
		}
		controllers = append(controllers, Controller{metadata.NodeID(n), addr})
	}
	return controllers, nil
}
