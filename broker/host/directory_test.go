package host

import (
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/storage/vfs"
)

func TestDirectoryKeepsItsIdentity(t *testing.T) {
	root := filepath.Join(t.TempDir(), "data")
	first, err := OpenDirectory(root, 3, "", "")
	if err != nil {
		t.Fatal(err)
	}
	if !first.First || len(first.ClusterID) != 22 || len(first.DirectoryID) != 22 || first.ClusterID == first.DirectoryID {
		t.Errorf("%+v", first)
	}
	if _, err := OpenDirectory(root, 3, "", ""); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("a directory in use: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := OpenDirectory(root, 3, first.ClusterID, "fresh")
	if err != nil {
		t.Fatal(err)
	}
	if again.First || again.Identity != first.Identity {
		t.Errorf("%+v, was %+v", again, first)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		node    metadata.NodeID
		cluster string
	}{{4, ""}, {3, "anotherClusterXXXXXXXX"}} {
		if _, err := OpenDirectory(root, c.node, c.cluster, c.cluster); !errors.Is(err, ErrDirectory) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestDirectoryOfUnknownFormIsRefused(t *testing.T) {
	for name, text := range map[string]string{ // any order
		"empty":        "",
		"old":          "version=0\nbroker.id=1\ncluster.id=x\n",
		"no node":      "version=1\ncluster.id=x\ndirectory.id=y\n",
		"not a number": "version=1\nnode.id=one\ncluster.id=x\ndirectory.id=y\n",
	} {
		root := t.TempDir()
		if err := os.WriteFile(filepath.Join(root, metaName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenDirectory(root, 1, "", ""); !errors.Is(err, ErrDirectory) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDirectoryThatKafkaFormattedIsRead(t *testing.T) {
	root := t.TempDir()
	const text = "#\n#Tue Dec 01 12:00:00 UTC 2026\ncluster.id = MkU3OEVBNTcwNTJENDM2Qg\nversion=1\ndirectory.id=kUQpzCrVzBv0mmWoPLDVqw\nnode.id=1\n"
	if err := os.WriteFile(filepath.Join(root, metaName), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := OpenDirectory(root, 1, "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.ClusterID != "MkU3OEVBNTcwNTJENDM2Qg" || d.DirectoryID != "kUQpzCrVzBv0mmWoPLDVqw" {
		t.Errorf("%+v", d.Identity)
	}
}

func TestIdentityReadsWhatItWrites(t *testing.T) {
	want := Identity{ClusterID: newID(), Node: 7, DirectoryID: newID()}
	got, err := parseIdentity([]byte(want.String()))
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestFormatSurvivesACrashBeforeTheRename(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, metaTemp), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := OpenDirectory(root, 1, "", "")
	if err != nil || !d.First {
		t.Fatal(err)
	}
	d.Close()
}

func TestClusterIDIsDerivedOnlyForAFreshDirectory(t *testing.T) {
	derived := DeriveClusterID("1@a:1,2@b:1")
	if len(derived) != 22 || derived[0] == '-' || derived != DeriveClusterID("1@a:1,2@b:1") || derived == DeriveClusterID("1@a:1,2@b:2") {
		t.Errorf("derived %q", derived)
	}
	root := filepath.Join(t.TempDir(), "data")
	for _, fresh := range []string{derived, "other"} { // with another list of controllers the cluster is still the same
		d, err := OpenDirectory(root, 1, "", fresh)
		if err != nil {
			t.Fatal(err)
		}
		if d.ClusterID != derived {
			t.Errorf("cluster %q, want %q", d.ClusterID, derived)
		}
		d.Close()
	}
}

func TestDirectoryIDGoesOverTheWire(t *testing.T) {
	id := Identity{DirectoryID: newID()}
	sent := id.Bytes()
	if got := base64.RawURLEncoding.EncodeToString(sent[:]); got != id.DirectoryID {
		t.Errorf("%s, want %s", got, id.DirectoryID)
	}
	if (Identity{DirectoryID: "odd"}).Bytes() == (Identity{DirectoryID: "even"}).Bytes() {
		t.Error("ids that are not UUIDs are the same")
	}
}

// refusing is a file system that makes no file.
type refusing struct {
	vfs.FS
	errno syscall.Errno
}

func (r refusing) Create(name string) (vfs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: r.errno}
}

// TestADirectoryThatCannotBeUsedIsNamedWithTheCure: in one line, and whoever calls
// can still tell what it was.
func TestADirectoryThatCannotBeUsedIsNamedWithTheCure(t *testing.T) {
	for errno, cure := range map[syscall.Errno]string{
		syscall.ENOSPC: "its file system is full: make room there, or name another with --data-dir",
		syscall.EDQUOT: "its file system is full: make room there, or name another with --data-dir",
		syscall.EROFS:  "its file system is read-only: mount it for writing, or name another with --data-dir",
		syscall.EACCES: "may not write there: give it the directory, or name another with --data-dir",
		syscall.EPERM:  "may not write there: give it the directory, or name another with --data-dir",
	} {
		root := t.TempDir()
		_, err := openDirectory(root, refusing{vfs.OS(root), errno}, 1, "", "")
		if !errors.Is(err, errno) || !strings.Contains(err.Error(), cure) || !strings.HasPrefix(err.Error(), "data directory "+root+" cannot be used: ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v", errno, err)
		}
		d, err := OpenDirectory(root, 1, "", "") // it was not kept locked
		if err != nil {
			t.Fatal(err)
		}
		d.Close()
	}
}
