package cli

import (
	"fmt"
	"io"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Version is what this binary was built from.
type Version struct {
	Version  string `json:"version"`            // of the module, or "(devel)"
	Revision string `json:"revision,omitempty"` // of the repository
	Time     string `json:"time,omitempty"`     // of the revision
	Modified bool   `json:"modified"`           // built from changed files
	Go       string `json:"go"`
}

// BuildVersion reads what the go command recorded in the binary.
func BuildVersion() Version {
	v := Version{Version: "(devel)"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Go = info.GoVersion
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func (v Version) String() string {
	s := "pawl " + v.Version
	if v.Revision != "" {
		s += " " + v.Revision
	}
	if v.Modified {
		s += " (modified)"
	}
	return s + " " + v.Go
}

func (a *App) version() *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "Print what this binary was built from",
		Example: "  pawl version --json", Args: Positional(),
		RunE: func(*cobra.Command, []string) error {
			v := BuildVersion()
			return a.Print(v, func(w io.Writer) { fmt.Fprintln(w, v) })
		},
	}
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON, for programs")
	return cmd
}
