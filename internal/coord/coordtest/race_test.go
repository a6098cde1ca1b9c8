//go:build race

package coordtest_test

func init() { slow = true }
