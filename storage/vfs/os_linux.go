package vfs

import (
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

const errQuota = syscall.EDQUOT

// openFile opens a file under the name dir. A broker has a file open for every
// partition that was written, and its name is a third of what that costs: the
// kernel knows it, see nameOf. Nor does this ask, as os.OpenFile does with five
// system calls, whether a file can be polled.
func openFile(path string, flag int, dir string) (*os.File, error) {
	for {
		fd, err := unix.Open(path, flag|unix.O_CLOEXEC, 0o644)
		switch err {
		case nil:
			return os.NewFile(uintptr(fd), dir), nil
		case unix.EINTR:
		default:
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// nameOf is the path of an open file, or of its directory if the kernel does not
// tell.
func nameOf(f *os.File) string {
	name := f.Name()
	_ = control(f, func(fd int) error {
		path, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
		if err == nil {
			name = path
		}
		return nil
	})
	return name
}

// syncData is fdatasync(2): the bytes and the size, but not the times.
func syncData(f *os.File) error {
	return control(f, unix.Fdatasync)
}

// syncWhole writes everything on f's file system. The error is that of any file
// since f was opened; kernels before 5.8 do not tell.
func syncWhole(f *os.File) (done bool, err error) {
	return true, control(f, unix.Syncfs)
}

// startWriteBack begins to write a range, n bytes or for 0 all, without waiting
// for it. It promises nothing: what goes wrong is for the next sync to tell.
func startWriteBack(f *os.File, off, n int64) {
	_ = control(f, func(fd int) error {
		return unix.SyncFileRange(fd, off, n, unix.SYNC_FILE_RANGE_WRITE)
	})
}

// waitWriteBack waits for what startWriteBack began on a whole file.
func waitWriteBack(f *os.File) error {
	return control(f, func(fd int) error {
		return unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WAIT_BEFORE)
	})
}

// control runs a system call on f's descriptor, again if a signal interrupts
// it.
func control(f *os.File, call func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var callErr error
	err = conn.Control(func(fd uintptr) {
		for {
			if callErr = call(int(fd)); callErr != unix.EINTR {
				return
			}
		}
	})
	if err != nil { // it can only be closed
		return &os.PathError{Op: "sync", Path: f.Name(), Err: os.ErrClosed}
	}
	if callErr != nil {
		return &os.PathError{Op: "sync", Path: f.Name(), Err: callErr}
	}
	return nil
}
