package maelstrom

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Config of a node under Maelstrom.
type Config struct {
	// Dir is where nodes keep their data, each in a folder of its name. Empty
	// means a fresh temporary folder.
	Dir string
	// Sync is whether what is acknowledged has been synced to the disk. Maelstrom
	// never cuts the power, so that nothing it does can tell.
	Sync bool
}

// ErrUsage says an argument is not one.
var ErrUsage = errors.New("usage: pawlmaelstrom [dir=PATH] [sync=true|false]")

// ParseConfig reads arguments of the form name=value. dir is what Dir is if no
// argument says.
func ParseConfig(args []string, dir string) (Config, error) {
	cfg := Config{Dir: dir, Sync: true}
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "dir":
			cfg.Dir = value
		case "sync":
			sync, err := strconv.ParseBool(value)
			if err != nil {
				return Config{}, fmt.Errorf("%w: sync is true or false, not %q", ErrUsage, value)
			}
			cfg.Sync = sync
		default:
			return Config{}, fmt.Errorf("%w: unknown argument %q", ErrUsage, arg)
		}
	}
	return cfg, nil
}
