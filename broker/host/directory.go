package host

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/storage/vfs"
)

// ErrDirectory says a data directory belongs to another node or cluster, or
// cannot be understood.
var ErrDirectory = errors.New("data directory is not this node's")

// metaName is the file that says whose a data directory is. Its name and form
// are Kafka's.
const (
	metaName    = "meta.properties"
	metaTemp    = metaName + ".tmp"
	metaVersion = "1"
)

// Identity is whose a data directory is.
type Identity struct {
	ClusterID   string // 22 characters of URL-safe base64, Kafka's form of a UUID
	Node        metadata.NodeID
	DirectoryID string // likewise; drawn when the directory is first used
}

// Directory is a data directory that this process owns.
type Directory struct {
	FS vfs.FS
	Identity
	First bool // it had not been used before

	lock io.Closer
}

// OpenDirectory takes the data directory root for node, and writes down there
// whose it is if nobody did before. That is durable once a store was opened in
// it, which comes before anything that a client is told. A clusterID that is empty means the one in
// the directory, or a new one. An error matches vfs.ErrLocked if another
// process has the directory and ErrDirectory if another node does.
func OpenDirectory(root string, node metadata.NodeID, clusterID string) (*Directory, error) {
	lock, err := vfs.Lock(root)
	if err != nil {
		return nil, err
	}
	d := &Directory{FS: vfs.OS(root), lock: lock}
	d.Identity, d.First, err = identify(d.FS, node, clusterID)
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("%s: %w", root, err)
	}
	return d, nil
}

// Close gives the directory up.
func (d *Directory) Close() error { return d.lock.Close() }

func identify(fsys vfs.FS, node metadata.NodeID, clusterID string) (id Identity, first bool, err error) {
	text, err := readFile(fsys, metaName)
	if errors.Is(err, fs.ErrNotExist) {
		if clusterID == "" {
			clusterID = newID()
		}
		id = Identity{ClusterID: clusterID, Node: node, DirectoryID: newID()}
		return id, true, format(fsys, id)
	}
	if err != nil {
		return id, false, err
	}
	id, err = parseIdentity(text)
	switch {
	case err != nil:
		return id, false, err
	case id.Node != node:
		return id, false, fmt.Errorf("%w: node.id is %d, want %d", ErrDirectory, id.Node, node)
	case clusterID != "" && id.ClusterID != clusterID:
		return id, false, fmt.Errorf("%w: cluster.id is %s, want %s", ErrDirectory, id.ClusterID, clusterID)
	}
	return id, false, nil
}

// String is the identity as it stands in meta.properties.
func (id Identity) String() string {
	return fmt.Sprintf("cluster.id=%s\nnode.id=%d\ndirectory.id=%s\nversion=%s\n", id.ClusterID, id.Node, id.DirectoryID, metaVersion)
}

func parseIdentity(text []byte) (Identity, error) {
	values := map[string]string{}
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		line := strings.TrimSpace(s.Text())
		if key, value, ok := strings.Cut(line, "="); ok && line[0] != '#' {
			values[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	if v := values["version"]; v != metaVersion {
		return Identity{}, fmt.Errorf("%w: %s has version %q, want %s", ErrDirectory, metaName, v, metaVersion)
	}
	node, err := strconv.ParseInt(values["node.id"], 10, 32)
	if err != nil || values["cluster.id"] == "" || values["directory.id"] == "" {
		return Identity{}, fmt.Errorf("%w: %s lacks a node.id, cluster.id or directory.id", ErrDirectory, metaName)
	}
	return Identity{ClusterID: values["cluster.id"], Node: metadata.NodeID(node), DirectoryID: values["directory.id"]}, nil
}

// format writes the identity so that it is there whole or not at all. It leaves
// the sync of the directory to storage.Open, which never goes without one.
func format(fsys vfs.FS, id Identity) error {
	if err := fsys.Remove(metaTemp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := fsys.Create(metaTemp)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(id.String()), 0)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", metaTemp, err)
	}
	return fsys.Rename(metaTemp, metaName)
}

func readFile(fsys vfs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(f, 0, size))
}

// newID draws a random UUID in Kafka's form. Kafka's own never begin with '-',
// because its tools would take them for options.
func newID() string {
	for {
		var id [16]byte
		rand.Read(id[:]) // never fails
		id[6] = id[6]&0x0f | 0x40
		id[8] = id[8]&0x3f | 0x80
		if s := base64.RawURLEncoding.EncodeToString(id[:]); s[0] != '-' {
			return s
		}
	}
}
