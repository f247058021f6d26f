package main

import "syscall"

// dieWithParent makes a replica drain when `up` is killed outright.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGTERM }
