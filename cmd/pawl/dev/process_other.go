//go:build !linux

package dev

import "syscall"

// attributes keep ctrl-C to this process, which passes it on.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
