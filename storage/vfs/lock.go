package vfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ErrLocked says another process uses the data directory.
var ErrLocked = errors.New("data directory is in use")

// Lock makes the directory root if need be, and keeps other processes out of it
// until the result is closed or this process ends, however it ends. If another
// process has it, the error matches ErrLocked and names its pid.
func Lock(root string) (io.Closer, error) {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, err
	}
	name := filepath.Join(root, lockName)
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f); err != nil {
		held, readErr := os.ReadFile(name)
		f.Close()
		if !errors.Is(err, ErrLocked) || readErr != nil {
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		return nil, fmt.Errorf("%w: %s is held by process %s", ErrLocked, name, strings.TrimSpace(string(held)))
	}
	if err := writePid(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return f, nil // the lock goes with the descriptor; the file stays, since removing it would race
}

func writePid(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}
