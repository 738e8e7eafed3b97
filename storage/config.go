package storage

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Config of a store. Start from DefaultConfig; the zero value is not valid.
type Config struct {
	// LargeAppend is how many bytes one commit group must add to one log for
	// them to go to its segment alone; what is smaller goes through the journal.
	LargeAppend int64
	// JournalFileBytes is when a journal file is full.
	JournalFileBytes int64
	// JournalGrowBytes is how much of a journal file is zeroed ahead at a time.
	JournalGrowBytes int64
	// IndexIntervalBytes is how many bytes of batches share an index entry, at
	// least. A data directory keeps the one it was made with.
	// Kafka: log.index.interval.bytes.
	IndexIntervalBytes int64
}

// DefaultConfig is what a broker runs with if told nothing.
func DefaultConfig() Config {
	return Config{LargeAppend: 128 << 10, JournalFileBytes: 64 << 20, JournalGrowBytes: 256 << 10, IndexIntervalBytes: 4096}
}

// fields pairs every field with its name and range, in printing order.
func (c *Config) fields() []field {
	return []field{
		{"large-append", &c.LargeAppend, 1, 1 << 40},
		{"journal-file-bytes", &c.JournalFileBytes, 1 << 10, 1 << 31},
		{"journal-grow-bytes", &c.JournalGrowBytes, 0, 1 << 30},
		{"index-interval-bytes", &c.IndexIntervalBytes, 1, 1 << 30},
	}
}

type field struct {
	name     string
	value    *int64
	min, max int64
}

// Validate returns an error that names the first field out of range.
func (c Config) Validate() error {
	for _, f := range c.fields() {
		if *f.value < f.min || *f.value > f.max {
			return fmt.Errorf("storage config: %s=%d, want %d to %d", f.name, *f.value, f.min, f.max)
		}
	}
	return nil
}

// String is the configuration as name=value, separated by spaces.
func (c Config) String() string {
	var out []string
	for _, f := range c.fields() {
		out = append(out, f.name+"="+strconv.FormatInt(*f.value, 10))
	}
	return strings.Join(out, " ")
}

// ParseConfig reads what String prints. What is not named has its default.
func ParseConfig(text string) (Config, error) {
	c := DefaultConfig()
	for _, word := range strings.Fields(text) {
		name, value, _ := strings.Cut(word, "=")
		err := errors.New("no such field")
		for _, f := range c.fields() {
			if f.name == name {
				*f.value, err = strconv.ParseInt(value, 10, 64)
			}
		}
		if err != nil {
			return Config{}, fmt.Errorf("storage config: %q: %w", word, err)
		}
	}
	return c, c.Validate()
}
