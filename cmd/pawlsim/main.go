// Command pawlsim simulates pawl: one seed is one run, and the same seed is the
// same run.
package main

import (
	"os"

	"github.com/pawlbroker/pawl/sim/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr)) }
