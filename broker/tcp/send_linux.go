package tcp

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// sendFile sends n bytes of f from pos, out of the kernel's cache. It returns
// io.ErrUnexpectedEOF if the file is shorter and os.ErrClosed if it is closed.
//
// It names the position itself: io.Copy would use sendfile too, but from the
// position of f, which every connection that reads the segment shares. And it
// holds the file while it sends, since a closed file's descriptor may be
// another file's the next moment.
func sendFile(tcp *net.TCPConn, sock syscall.RawConn, f *os.File, pos, n int64) error {
	file, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = sock.Write(func(to uintptr) (done bool) {
		err := file.Control(func(from uintptr) {
			done, failed = sendSome(int(to), int(from), &pos, &n)
		})
		if err != nil {
			done, failed = true, err
		}
		return done
	})
	if err != nil {
		return err
	}
	if errors.Is(failed, unix.EINVAL) || errors.Is(failed, unix.ENOSYS) { // a file system without it
		return copyFile(tcp, f, pos, n)
	}
	return failed
}

// sendSome sends until everything is sent, which is done, or the socket is full.
func sendSome(to, from int, pos, n *int64) (done bool, err error) {
	for *n > 0 {
		sent, err := unix.Sendfile(to, from, pos, int(*n))
		*n -= int64(max(sent, 0))
		switch {
		case errors.Is(err, unix.EAGAIN):
			return false, nil
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return true, os.NewSyscallError("sendfile", err)
		case sent == 0:
			return true, io.ErrUnexpectedEOF
		}
	}
	return true, nil
}

// writeAll writes p. more tells the kernel that something follows.
func writeAll(tcp *net.TCPConn, sock syscall.RawConn, p []byte, more bool) error {
	if !more {
		_, err := tcp.Write(p)
		return err
	}
	var failed error
	err := sock.Write(func(to uintptr) (done bool) {
		for len(p) > 0 {
			n, err := unix.SendmsgN(int(to), p, nil, nil, unix.MSG_MORE|unix.MSG_NOSIGNAL)
			switch {
			case errors.Is(err, unix.EAGAIN):
				return false
			case errors.Is(err, unix.EINTR):
			case err != nil:
				failed = os.NewSyscallError("sendmsg", err)
				return true
			default:
				p = p[n:]
			}
		}
		return true
	})
	return errors.Join(err, failed)
}
