//go:build !windows

package platform // want `build constraint` `other_windows.go is left out on this platform`

const fast = true
