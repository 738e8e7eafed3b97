package host

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

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
// it, which comes before anything that a client is told. A clusterID that is
// empty means the one in the directory; if there is none either it is fresh, and
// if that is empty too a new one is drawn. An error matches vfs.ErrLocked if
// another process has the directory and ErrDirectory if another node does.
func OpenDirectory(root string, node metadata.NodeID, clusterID, fresh string) (*Directory, error) {
	return openDirectory(root, vfs.OS(root), node, clusterID, fresh)
}

func openDirectory(root string, fsys vfs.FS, node metadata.NodeID, clusterID, fresh string) (*Directory, error) {
	lock, err := vfs.Lock(root)
	if err != nil {
		return nil, unusable(root, err)
	}
	d := &Directory{FS: fsys, lock: lock}
	d.Identity, d.First, err = identify(d.FS, node, clusterID, fresh)
	if err != nil {
		lock.Close()
		if cured := unusable(root, err); cured != err {
			return nil, cured
		}
		return nil, fmt.Errorf("%s: %w", root, err)
	}
	return d, nil
}

// unusable says of an error about a data directory what to do, if it is one that
// an operator can end.
func unusable(root string, err error) error {
	cure := ""
	switch {
	case errors.Is(err, vfs.ErrLocked):
		return fmt.Errorf("%w; stop that, or name another directory with --data-dir", err)
	case errors.Is(err, vfs.ErrNoSpace), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		cure = "its file system is full: make room there"
	case errors.Is(err, syscall.EROFS):
		cure = "its file system is read-only: mount it for writing"
	case errors.Is(err, fs.ErrPermission):
		cure = fmt.Sprintf("this process, of user %d, may not write there: give it the directory", os.Getuid())
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR):
		cure = "what is there is no directory of pawl's: move it away"
	case errors.Is(err, fs.ErrNotExist):
		cure = "it cannot be made there"
	default:
		return err
	}
	return fmt.Errorf("data directory %s cannot be used: %w; %s, or name another with --data-dir", root, err, cure)
}

// Close gives the directory up.
func (d *Directory) Close() error { return d.lock.Close() }

func identify(fsys vfs.FS, node metadata.NodeID, clusterID, fresh string) (id Identity, first bool, err error) {
	text, err := readFile(fsys, metaName)
	if errors.Is(err, fs.ErrNotExist) {
		for _, one := range []string{fresh, newID()} {
			if clusterID == "" {
				clusterID = one
			}
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
		return id, false, fmt.Errorf("%w: it belongs to node %d, not %d; give every node a directory of its own", ErrDirectory, id.Node, node)
	case clusterID != "" && id.ClusterID != clusterID:
		return id, false, fmt.Errorf("%w: it belongs to cluster %s, not %s", ErrDirectory, id.ClusterID, clusterID)
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
		return Identity{}, fmt.Errorf("%w: %s has version %q, this pawl reads %s: start the one that wrote it", ErrDirectory, metaName, v, metaVersion)
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

// newID draws a random UUID in Kafka's form.
func newID() string {
	for {
		var id [16]byte
		rand.Read(id[:]) // never fails
		if s, ok := textOf(id, 4); ok {
			return s
		}
	}
}

// textOf makes bytes a UUID of the given version in Kafka's form, unless it would
// begin with '-': Kafka's tools would take it for an option.
func textOf(id [16]byte, version byte) (string, bool) {
	id[6] = id[6]&0x0f | version<<4
	id[8] = id[8]&0x3f | 0x80
	s := base64.RawURLEncoding.EncodeToString(id[:])
	return s, s[0] != '-'
}

// DeriveClusterID makes a cluster's id of what all of its nodes are told alike,
// so that they agree on it before they know each other.
func DeriveClusterID(told string) string {
	for n := 0; ; n++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "pawl cluster %d %s", n, told))
		if s, ok := textOf([16]byte(sum[:16]), 8); ok {
			return s
		}
	}
}

// Bytes is the directory's id as it goes over the wire. An id that is not 16
// bytes in Kafka's form, which only another program can have written, is made so.
func (id Identity) Bytes() [16]byte {
	p, err := base64.RawURLEncoding.DecodeString(id.DirectoryID)
	if err != nil || len(p) != 16 {
		sum := sha256.Sum256([]byte(id.DirectoryID))
		return [16]byte(sum[:16])
	}
	return [16]byte(p)
}
