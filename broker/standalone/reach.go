package standalone

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/pawlbroker/pawl/broker/wire"
)

// reachTime is how long the check of an advertised address may take.
const reachTime = 3 * time.Second

// checkReach finds out whether the addresses that a broker tells others lead
// anywhere, and says so in one line each. To be reached from here proves little,
// but most mistakes show: a name that is none, a port that is another's, a
// loopback address in a cluster of several machines.
func checkReach(ctx context.Context, log *slog.Logger, advertised map[string]string, controllers []wire.Peer) {
	limited, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	for _, what := range []string{"clients", "nodes"} {
		addr, told := advertised[what]
		if !told {
			continue
		}
		if err := reach(limited, addr, controllers); err != nil && ctx.Err() == nil {
			log.Warn("advertised address may not be reached", slog.String("by", what), slog.String("address", addr), slog.Any("err", err))
		}
	}
}

func reach(ctx context.Context, addr string, controllers []wire.Peer) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("it cannot from here: %w", err)
	}
	defer conn.Close()
	if !conn.RemoteAddr().(*net.TCPAddr).IP.IsLoopback() {
		return nil
	}
	for _, p := range controllers {
		if !onThisMachine(ctx, p.Host) {
			return fmt.Errorf("it is this machine's own name for itself, and the controller at %s is on another", net.JoinHostPort(p.Host, strconv.Itoa(int(p.Port))))
		}
	}
	return nil
}

// onThisMachine reports whether a host is a loopback address; one that has no
// address yet is given the benefit of the doubt.
func onThisMachine(ctx context.Context, host string) bool {
	addrs, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil || len(addrs) == 0 {
		return true
	}
	for _, a := range addrs {
		if a.IP.IsLoopback() {
			return true
		}
	}
	return false
}
