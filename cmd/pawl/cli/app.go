// Package cli holds the commands of pawl that are clients of a broker, and what
// all commands share: results on stdout, everything else on stderr, errors of
// one line, exit codes.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// Exit codes of every command.
const (
	ExitOK      = 0
	ExitFailure = 1 // a negative result, or something went wrong
	ExitUsage   = 2 // the command line makes no sense
)

// App is one invocation of the program.
type App struct {
	In       io.Reader
	Out, Err io.Writer
	Getenv   func(string) string

	brokers    []string
	timeout    timeoutFlag
	json       bool
	properties []string
}

// New returns an App on these streams and environment.
func New(in io.Reader, out, err io.Writer, getenv func(string) string) *App {
	return &App{In: in, Out: out, Err: err, Getenv: getenv}
}

// Root returns the command pawl with the client commands in it. Others are
// added to it by whoever has them.
func (a *App) Root() *cobra.Command {
	root := &cobra.Command{
		Use:   "pawl",
		Short: "A Kafka-compatible broker in which an acknowledged record never slips back",
		Example: `  pawl serve
  pawl topic create orders --partitions 3
  echo hello | pawl produce orders
  pawl consume orders --from start --count 1`,
		SilenceErrors: true, SilenceUsage: true,
	}
	Within(root)
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return Usage("%v", err) })
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(a.topic(), a.produce(), a.consume(), a.group(), a.bench(), a.version(), a.nullBroker())
	return root
}

// Within makes a command that does nothing by itself: it wants a subcommand.
func Within(cmd *cobra.Command) {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return Usage("which command of %s?", cmd.CommandPath())
		}
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			return Usage("unknown command %q: did you mean %s?", args[0], strings.Join(near, " or "))
		}
		return Usage("unknown command %q", args[0])
	}
	cmd.SuggestionsMinimumDistance = 2
}

// Execute runs a command line and returns the exit code.
func (a *App) Execute(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	line := fmt.Sprintf("%s: %v", cmd.CommandPath(), err)
	code := ExitFailure
	var usage usageError
	if errors.As(err, &usage) {
		code = ExitUsage
		line += fmt.Sprintf("; see %s --help", cmd.CommandPath())
	}
	fmt.Fprintln(a.Err, strings.ReplaceAll(line, "\n", "; "))
	return code
}

// usageError is a command line that makes no sense.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

// Usage is an error about the command line; Execute returns ExitUsage for it.
func Usage(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

// Positional is an argument check: exactly these arguments, by their names in
// the usage line.
func Positional(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return Usage("%s is missing", strings.Join(names[len(args):], " "))
		case len(args) > len(names):
			return Usage("unexpected argument %q", args[len(names)])
		}
		return nil
	}
}

// Print writes a result: as JSON if that is asked for, as text otherwise.
func (a *App) Print(value any, text func(w io.Writer)) error {
	if a.json {
		encoder := json.NewEncoder(a.Out)
		encoder.SetEscapeHTML(false)
		return encoder.Encode(value)
	}
	w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	text(w)
	return w.Flush()
}

// Row writes one line of a table.
func Row(w io.Writer, cells ...any) {
	for i, cell := range cells {
		if i > 0 {
			fmt.Fprint(w, "\t")
		}
		fmt.Fprint(w, cell)
	}
	fmt.Fprintln(w)
}

// count writes a number of things.
func count(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
