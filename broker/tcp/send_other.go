//go:build !linux

package tcp

import (
	"net"
	"os"
	"syscall"
)

func sendFile(tcp *net.TCPConn, _ syscall.RawConn, f *os.File, pos, n int64) error {
	return copyFile(tcp, f, pos, n)
}

func writeAll(tcp *net.TCPConn, _ syscall.RawConn, p []byte, _ bool) error {
	_, err := tcp.Write(p)
	return err
}
