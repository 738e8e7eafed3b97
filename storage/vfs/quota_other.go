//go:build !unix

package vfs

import "errors"

var errQuota = errors.New("quota exceeded")
