// Command pawl is the broker and its client.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/pawlbroker/pawl/cmd/pawl/cli"
	"github.com/pawlbroker/pawl/cmd/pawl/cluster"
	"github.com/pawlbroker/pawl/cmd/pawl/dev"
	"github.com/pawlbroker/pawl/cmd/pawl/offline"
	"github.com/pawlbroker/pawl/cmd/pawl/serve"
)

func main() {
	// The first signal asks for an orderly end; with the handler gone, a second
	// one ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	app := cli.New(os.Stdin, os.Stdout, os.Stderr, os.Getenv)
	root := app.Root()
	root.AddCommand(serve.Command(app), dev.Command(app), cluster.Command(app), offline.Check(app), offline.Dump(app))
	os.Exit(app.Execute(ctx, root, os.Args[1:]))
}
