//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "link: network namespaces and their devices are Linux's")
	os.Exit(1)
}
