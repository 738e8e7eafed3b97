package maelstrom

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/host"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/job"
	"github.com/pawlbroker/pawl/storage/vfs"
)

// instance is a broker that runs in this process, without sockets.
type instance struct {
	host *host.Host
	dir  *host.Directory
}

// start runs a broker whose only connection is link.
func start(cfg Config, name string, link *link, logger *slog.Logger) (*instance, error) {
	root, err := folder(cfg.Dir, name)
	if err != nil {
		return nil, err
	}
	id, err := strconv.ParseInt(strings.TrimLeft(name, "n"), 10, 32)
	if err != nil {
		return nil, fmt.Errorf("node name %q: want n and a number", name)
	}
	dir, err := host.OpenDirectory(root, metadata.NodeID(id), "", "")
	if err != nil {
		return nil, err
	}
	var files vfs.FS = dir.FS
	if !cfg.Sync {
		files = unsynced{files}
	}
	node := broker.DefaultConfig(metadata.NodeID(id), dir.ClusterID)
	holder := job.NewHolder(files, storage.DefaultConfig())
	run := func(jobs []job.Job) []job.Result { return job.Run(holder, jobs) }
	h := host.Start(host.Config{Run: run, Readers: 2, Network: link, Logger: logger},
		func(env broker.Env) host.Node { return broker.New(node, env) })
	link.post = h.Post
	return &instance{h, dir}, nil
}

// folder is where a node's data goes.
func folder(dir, name string) (string, error) {
	if dir == "" {
		return os.MkdirTemp("", "pawlmaelstrom-")
	}
	root := filepath.Join(dir, name)
	return root, os.MkdirAll(root, 0o755)
}

// wait returns when the broker has ended, and why.
func (i *instance) wait() error { return i.host.Wait() }

// close ends the broker in good order.
func (i *instance) close() error {
	i.host.Shutdown()
	err := i.host.Wait()
	i.dir.Close()
	return err
}
