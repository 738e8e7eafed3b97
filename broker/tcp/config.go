package tcp

import (
	"errors"
	"fmt"
	"time"
)

// Config is how a server treats its connections.
type Config struct {
	// MaxRequestBytes is the longest request. Kafka: socket.request.max.bytes.
	MaxRequestBytes int
	// MaxDecompressed is the most bytes that one produced batch may decompress
	// to. Kafka has no such bound.
	MaxDecompressed int
	// MaxConnections is how many clients may be connected. Kafka:
	// max.connections.
	MaxConnections int
	// InFlight is how many requests of one connection may be without a response;
	// what follows them is not read.
	InFlight int
	// RequestMemory is how many bytes all requests together may take, from
	// before their body is read until their response is sent: one half for
	// frames, three eighths for what is decoded of them, one eighth for requests
	// that are small, frame and all. Beside it there are the buffers of
	// MaxConnections and as many MaxDecompressed as there are processors.
	RequestMemory int64
	// IdleTimeout is how long a connection may be silent. Kafka:
	// connections.max.idle.ms.
	IdleTimeout time.Duration
	// FrameTimeout is how long a request that has begun may take to arrive, on
	// top of its length divided by MinBytesPerSecond.
	FrameTimeout      time.Duration
	MinBytesPerSecond int64
	// WriteTimeout is how long a client may take to read what it is sent, for
	// each piece of at most 1 MiB.
	WriteTimeout time.Duration
}

// DefaultConfig has Kafka's values where Kafka has the setting.
func DefaultConfig() Config {
	return Config{
		MaxRequestBytes:   100 << 20,
		MaxDecompressed:   64 << 20,
		MaxConnections:    10_000,
		InFlight:          128,
		RequestMemory:     256 << 20,
		IdleTimeout:       10 * time.Minute,
		FrameTimeout:      30 * time.Second,
		MinBytesPerSecond: 1 << 20,
		WriteTimeout:      30 * time.Second,
	}
}

// ErrConfig says a configuration cannot work.
var ErrConfig = errors.New("tcp configuration")

// Validate returns ErrConfig if the server could not work like that.
func (c Config) Validate() error {
	for _, v := range []struct {
		name  string
		value int64
	}{
		{"MaxRequestBytes", int64(c.MaxRequestBytes)},
		{"MaxDecompressed", int64(c.MaxDecompressed)},
		{"MaxConnections", int64(c.MaxConnections)},
		{"InFlight", int64(c.InFlight)},
		{"RequestMemory", c.RequestMemory},
		{"IdleTimeout", int64(c.IdleTimeout)},
		{"FrameTimeout", int64(c.FrameTimeout)},
		{"MinBytesPerSecond", c.MinBytesPerSecond},
		{"WriteTimeout", int64(c.WriteTimeout)},
	} {
		if v.value <= 0 {
			return fmt.Errorf("%w: %s is %d, must be positive", ErrConfig, v.name, v.value)
		}
	}
	if c.RequestMemory/2 < int64(c.MaxRequestBytes) {
		return fmt.Errorf("%w: RequestMemory %d is less than two requests of MaxRequestBytes %d", ErrConfig, c.RequestMemory, c.MaxRequestBytes)
	}
	return nil
}
