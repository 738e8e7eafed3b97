package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ErrLocked says another process uses the data directory.
var ErrLocked = errors.New("data directory is in use")

// Lock makes the directory root if need be, and keeps other processes out of it
// until the result is closed or this process ends, however it ends. If another
// process has it, the error matches ErrLocked and names its pid.
func Lock(root string) (io.Closer, error) {
	if err := makeAll(filepath.Clean(root)); err != nil {
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

// makeAll makes a directory and those above it, durably: each new one's name is
// synced in the one above.
func makeAll(dir string) error {
	st, err := os.Stat(dir)
	switch {
	case err == nil && st.IsDir():
		return nil
	case err == nil:
		return &os.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	above := filepath.Dir(dir)
	if err := makeAll(above); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	f, err := os.Open(above)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func writePid(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}
