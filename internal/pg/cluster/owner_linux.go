package cluster

import "syscall"

// capDACReadSearch lets a process pass through and read folders that are closed to its user.
const capDACReadSearch = 2

// asServer lets a server that runs as another user reach a data folder inside a private one.
func asServer(attr *syscall.SysProcAttr) {
	if attr.Credential != nil {
		attr.AmbientCaps = []uintptr{capDACReadSearch}
	}
}

// dieWithParent makes the kernel signal the process when the thread that started it ends.
func dieWithParent(attr *syscall.SysProcAttr, signal syscall.Signal) { attr.Pdeathsig = signal }
