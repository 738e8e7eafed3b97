// Package offline has the commands that read a data directory and no broker:
// `pawl check` and `pawl dump`.
package offline

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/quorum"
	"github.com/pawlbroker/pawl/cmd/pawl/cli"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/vfs"
)

// metaName is the file that makes a directory a data directory.
const metaName = "meta.properties"

// errFound is the negative result of a check; the findings are its text.
var errFound = errors.New("the data directory is damaged")

// Check is `pawl check`.
func Check(a *cli.App) *cobra.Command {
	var dir string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Verify every byte of a stopped broker's data directory",
		Long: `Verify every checksum, index and invariant of the data directory of a broker that is not running. Nothing is changed. What
is wrong is named by file and position, one line each, and the exit status is 1.`,
		Example: "  pawl check --data-dir /var/lib/pawl",
		Args:    cli.Positional(),
		RunE: func(*cobra.Command, []string) error {
			if _, err := os.Stat(filepath.Join(dir, metaName)); err != nil {
				return fmt.Errorf("%s: no data directory: %w", dir, reason(err))
			}
			lock, err := vfs.Lock(dir)
			if err != nil {
				return fmt.Errorf("%w; stop the broker first", err)
			}
			defer lock.Close()
			found, err := storage.Check(vfs.OS(dir))
			if err != nil {
				return fmt.Errorf("%s: %w", dir, err)
			}
			if asJSON {
				err = json.NewEncoder(a.Out).Encode(struct {
					OK       bool              `json:"ok"`
					Findings []storage.Finding `json:"findings"`
				}{len(found) == 0, append([]storage.Finding{}, found...)})
			} else {
				for i := range found {
					fmt.Fprintln(a.Out, &found[i])
				}
				if len(found) == 0 {
					_, err = fmt.Fprintln(a.Out, "ok")
				}
			}
			if err == nil && len(found) > 0 {
				err = fmt.Errorf("%s: %w in %d places", dir, errFound, len(found))
			}
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "data-dir", "./pawl-data", "the data directory")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, for programs")
	return cmd
}

// Dump is `pawl dump`.
func Dump(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "dump PATH",
		Short: "Print a file of a data directory, decoded",
		Long: `Print any file that a broker writes: segments (.log), their indexes (.index), journals, the checkpoint, the clean mark, the
metadata log (quorum/*.journal). A file that is damaged is printed up to there.`,
		Example: "  pawl dump pawl-data/checkpoint\n  pawl dump pawl-data/quorum/00000000000000000001.journal",
		Args:    cli.Positional("PATH"),
		RunE: func(_ *cobra.Command, args []string) error {
			path := args[0]
			if _, err := os.Stat(path); err != nil {
				return fmt.Errorf("%s: %w", path, reason(err))
			}
			root, name, err := locate(path)
			if err != nil {
				return err
			}
			if name == metaName {
				text, err := os.ReadFile(path)
				if err == nil {
					_, err = a.Out.Write(text)
				}
				return err
			}
			return storage.Dump(vfs.OS(root), name, a.Out, describeQuorum)
		},
	}
}

// locate splits a path into its data directory and the name in there.
func locate(path string) (root, name string, err error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", "", err
	}
	for dir := filepath.Dir(abs); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, metaName)); err == nil {
			name, err := filepath.Rel(dir, abs)
			return dir, filepath.ToSlash(name), err
		}
		if dir == filepath.Dir(dir) {
			return "", "", fmt.Errorf("%s: not in a data directory: there is no %s above it", path, metaName)
		}
	}
}

// describeQuorum says what a record of the metadata log is.
func describeQuorum(b []byte) string {
	return quorum.Describe(b, func(data []byte) string {
		records, err := metadata.Decode(data)
		if err != nil {
			return err.Error()
		}
		lines := make([]string, len(records))
		for i, r := range records {
			lines[i] = r.String()
		}
		return strings.Join(lines, "; ")
	})
}

// reason is what is wrong with a path, without the path.
func reason(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
