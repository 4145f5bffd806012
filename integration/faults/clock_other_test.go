//go:build !linux

package faults

import "time"

// mono is the wall clock where there is no other that processes share.
func mono() time.Duration { return time.Duration(time.Now().UnixNano()) }
