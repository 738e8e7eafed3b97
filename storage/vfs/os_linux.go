package vfs

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const errQuota = syscall.EDQUOT

// syncData is fdatasync(2): the bytes and the size, but not the times.
func syncData(f *os.File) error {
	return control(f, unix.Fdatasync)
}

// syncWhole writes everything on f's file system. The error is that of any file
// since f was opened; kernels before 5.8 do not tell.
func syncWhole(f *os.File) (done bool, err error) {
	return true, control(f, unix.Syncfs)
}

// startWriteBack begins to write a range without waiting for it. It promises
// nothing: what goes wrong is for the next sync to tell.
func startWriteBack(f *os.File, off, n int64) {
	_ = control(f, func(fd int) error {
		return unix.SyncFileRange(fd, off, n, unix.SYNC_FILE_RANGE_WRITE)
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
