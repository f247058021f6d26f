//go:build !linux

package main

import "syscall"

// dieWithParent can't be had here: a replica outlives an `up` that was killed outright.
func dieWithParent(*syscall.SysProcAttr) {}
