//go:build !linux

package cluster

import "syscall"

func asServer(*syscall.SysProcAttr) {}

// dieWithParent can't be had here: the next start stops what a killed owner left behind.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}
