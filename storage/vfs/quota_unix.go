//go:build unix && !linux

package vfs

import "syscall"

const errQuota = syscall.EDQUOT
