//go:build !linux

package nullbroker

import (
	"io"
	"net"
	"os"
)

func datasync(f *os.File) error { return f.Sync() }

func sendFile(sock *net.TCPConn, f *os.File, from, size int64) error {
	_, err := io.Copy(sock, io.NewSectionReader(f, from, size))
	return err
}
