package maelstrom

import (
	"log/slog"
	"os"
	"path/filepath"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/host"
	"github.com/pawlbroker/pawl/maelstrom/mesh"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/job"
	"github.com/pawlbroker/pawl/storage/vfs"
)

// instance is a broker that runs in this process, without sockets.
type instance struct {
	host    *host.Host
	dir     *host.Directory
	carrier *carrier // nil if the node is alone
	nodes   requester
}

// start runs a broker. Its messages to other nodes go to send, which must not
// block.
func start(cfg Config, c cluster, send func(to string, f mesh.Frame), logger *slog.Logger) (*instance, error) {
	root, err := folder(cfg.Dir, c.self.name)
	if err != nil {
		return nil, err
	}
	dir, err := host.OpenDirectory(root, c.self.id, "", c.id())
	if err != nil {
		return nil, err
	}
	node, err := c.broker(dir.ClusterID)
	if err != nil {
		dir.Close()
		return nil, err
	}
	var files vfs.FS = dir.FS
	if !cfg.Sync {
		files = unsynced{files}
	}
	holder := job.NewHolder(files, storage.DefaultConfig())
	own := newLink(c.self.name)
	i := &instance{dir: dir, nodes: own}
	hosted := host.Config{
		Run:     func(jobs []job.Job) []job.Result { return job.Run(holder, jobs) },
		Readers: 2, Network: own, Logger: logger,
	}
	if !c.alone() {
		i.carrier = newCarrier(c, dir.ClusterID, own, send, logger)
		i.nodes, hosted.Network, hosted.Peers = i.carrier, i.carrier, i.carrier
	}
	i.host = host.Start(hosted, func(env broker.Env) host.Node { return broker.New(node, env) })
	own.open(i.host.Post)
	return i, nil
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

// receive takes a message of another node.
func (i *instance) receive(from string, f mesh.Frame) {
	if i.carrier != nil {
		i.carrier.receive(from, f)
	}
}

// close ends the broker in good order.
func (i *instance) close() error {
	i.host.Shutdown()
	err := i.host.Wait()
	if i.carrier != nil {
		i.carrier.close()
	}
	i.dir.Close()
	return err
}
