// Package serve is `pawl serve`: a broker in the foreground.
package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/pawlbroker/pawl/broker/admin"
	"github.com/pawlbroker/pawl/broker/standalone"
)

// options is what `pawl serve` was asked to do.
type options struct {
	broker standalone.Config
	http   string // address of the HTTP side, or empty for none
}

// run serves until ctx ends, then stops in good order. It prints "ready" to out
// once clients are answered.
func run(ctx context.Context, o options, out io.Writer, log *slog.Logger) error {
	begun := time.Now()
	limitMemory(o.broker.TCP.RequestMemory)
	b, err := standalone.Start(o.broker, log)
	if err != nil {
		return err
	}
	var side *http.Server
	if o.http != "" {
		if side, err = serveHTTP(o.http, b, log); err != nil {
			return errors.Join(err, b.Shutdown())
		}
		defer side.Close()
	}
	select {
	case <-b.Ready():
		log.Info("ready", slog.Duration("after", time.Since(begun)))
		fmt.Fprintln(out, "ready")
	case <-b.Done():
	case <-ctx.Done():
	}
	resting, stop := context.WithCancel(ctx)
	defer stop()
	go tuneMemory(resting, b)
	select {
	case <-b.Done():
		return b.Wait()
	case <-ctx.Done():
	}
	log.Info("shutting down")
	err = b.Shutdown()
	log.Info("stopped", slog.Bool("clean", err == nil))
	return err
}

func serveHTTP(addr string, b *standalone.Broker, log *slog.Logger) (*http.Server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s for HTTP: %w", addr, err)
	}
	side := &http.Server{Handler: admin.Handler(b), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := side.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("HTTP side failed", slog.Any("error", err))
		}
	}()
	log.Info("HTTP side", slog.String("listener", l.Addr().String()))
	return side, nil
}
