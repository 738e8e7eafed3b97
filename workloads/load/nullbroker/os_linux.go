package nullbroker

import (
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// maxChunk bounds one sendfile call, in bytes.
const maxChunk = 4 << 20

func datasync(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if err != unix.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}

// sendFile sends size bytes of f from a position, without moving the position
// that f itself has.
func sendFile(sock *net.TCPConn, f *os.File, from, size int64) error {
	raw, err := sock.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		for size > 0 {
			sent, err := unix.Sendfile(int(fd), int(f.Fd()), &from, int(min(size, maxChunk)))
			size -= int64(max(sent, 0))
			switch {
			case err == unix.EAGAIN:
				return false
			case err == unix.EINTR:
			case err != nil:
				failed = os.NewSyscallError("sendfile", err)
				return true
			case sent == 0:
				failed = io.ErrUnexpectedEOF
				return true
			}
		}
		return true
	})
	if err != nil {
		return err
	}
	return failed
}
