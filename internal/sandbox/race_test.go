//go:build race && linux

package sandbox

func init() { slow = true }
