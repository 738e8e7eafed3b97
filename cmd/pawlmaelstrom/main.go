// Command pawlmaelstrom is a pawl node for Maelstrom's kafka workload: JSON
// lines on standard input and output, text on standard error.
//
//	pawlmaelstrom [dir=PATH] [sync=true|false]
//
// Several nodes are one cluster, which replicates to three of them.
//
// dir, or PAWL_DIR in the environment, is where its data goes, in a folder named
// after the node (default: a fresh temporary folder); sync=false skips fsync.
package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"

	"github.com/pawlbroker/pawl/maelstrom"
)

const help = `A pawl node for Maelstrom's kafka workload. It takes no flags, only

  dir=PATH          where its data goes; or PAWL_DIR (default: a fresh temporary folder)
  sync=true|false   false skips fsync (default: true)

Example:
  maelstrom test -w kafka --bin bin/pawlmaelstrom --node-count 3 --concurrency 2n --time-limit 20 --nemesis partition --availability 0.9
`

func main() {
	if len(os.Args) == 2 && (os.Args[1] == "--help" || os.Args[1] == "-h" || os.Args[1] == "help") {
		fmt.Print(help)
		return
	}
	cfg, err := maelstrom.ParseConfig(os.Args[1:], os.Getenv("PAWL_DIR"))
	if err == nil {
		log.SetOutput(io.Discard) // Maelstrom's library writes a line for every message
		logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
		err = maelstrom.Serve(cfg, os.Stdin, os.Stdout, logger)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "pawlmaelstrom:", err)
		if errors.Is(err, maelstrom.ErrUsage) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}
