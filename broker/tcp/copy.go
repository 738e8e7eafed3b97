package tcp

import (
	"io"
	"net"
	"os"
)

// copyFile sends n bytes of f from pos by reading them.
func copyFile(tcp *net.TCPConn, f *os.File, pos, n int64) error {
	// The bare Reader keeps io.Copy from using the file itself.
	sent, err := io.Copy(tcp, struct{ io.Reader }{io.NewSectionReader(f, pos, n)})
	if err == nil && sent < n {
		err = io.ErrUnexpectedEOF
	}
	return err
}
