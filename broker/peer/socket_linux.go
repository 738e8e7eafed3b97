package peer

import (
	"context"
	"syscall"

	"golang.org/x/sys/unix"
)

// tune has the kernel give a connection up whose bytes nobody acknowledges.
func tune(_ context.Context, _, _ string, c syscall.RawConn) (err error) {
	outer := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(Silence.Milliseconds()))
	})
	if outer != nil {
		return outer
	}
	return err
}
