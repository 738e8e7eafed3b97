//go:build interop

package interop

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// need fails the test unless the machine has a program.
func need(t *testing.T, program, why string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Fatalf("%v: %s", err, why)
	}
}

// build builds the program of a module that stands beside this package.
func build(t *testing.T, module string) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), module)
	command{dir: module, env: []string{"GOFLAGS=-mod=readonly", "GOWORK=off"}, args: []string{"go", "build", "-o", program, "."}}.output(t)
	return program
}

// TestGoClients of which pawl has no need itself.
func TestGoClients(t *testing.T) {
	program := build(t, "clients")
	for _, client := range []string{"sarama", "kafka-go"} {
		t.Run(client, func(t *testing.T) {
			addr := serve(t)
			play(t, addr, command{args: []string{program, client, addr, client}})
		})
	}
}

// TestLibrdkafka through confluent-kafka-go.
func TestLibrdkafka(t *testing.T) {
	need(t, "gcc", "confluent-kafka-go needs cgo")
	addr := serve(t)
	play(t, addr, command{args: []string{build(t, "librdkafka"), addr, "librdkafka"}})
}

// TestKafkaPython in its last version, and in the one that Debian has and that
// guesses the broker's version from the ranges it names.
func TestKafkaPython(t *testing.T) {
	need(t, "python3", "it is a library for Python")
	for _, version := range []string{"2.0.2", "3.0.12"} {
		t.Run(version, func(t *testing.T) {
			dir := t.TempDir()
			command{args: []string{
				"python3", "-m", "pip", "install", "--quiet", "--target", dir, "kafka-python==" + version, "lz4", "python-snappy", "zstandard",
			}}.output(t)
			addr := serve(t)
			play(t, addr, command{env: []string{"PYTHONPATH=" + dir}, args: []string{"python3", "testdata/kafka_python.py", addr, "python"}})
		})
	}
}

// TestNodeClients: @platformatic/kafka 1.35 is the last that runs on Node.js 20.
func TestNodeClients(t *testing.T) {
	need(t, "node", "these are libraries for Node.js")
	need(t, "npm", "the libraries come by it")
	for script, module := range map[string]string{"kafkajs.mjs": "kafkajs@2.2.4", "platformatic.mjs": "@platformatic/kafka@1.35.0"} {
		t.Run(module, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte("{}"), 0o600); err != nil {
				t.Fatal(err)
			}
			command{dir: dir, args: []string{"npm", "install", "--prefix", dir, "--no-audit", "--no-fund", "--silent", module}}.output(t)
			addr := serve(t)
			play(t, addr, command{env: []string{"MODULES=" + dir}, args: []string{"node", filepath.Join("testdata", script), addr, "node"}})
		})
	}
}
