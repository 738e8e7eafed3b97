package dev

import "syscall"

// attributes keep ctrl-C to this process, which passes it on, and end the nodes
// with it however it ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
