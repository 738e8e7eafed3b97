package maelstrom

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// offsets is what is known of the committed offsets.
type offsets struct {
	mu        sync.Mutex
	committed map[string]int64 // acknowledged
	next      int64            // offsetsTopic below it is in committed
}

// raises reports whether offsets has anything that is not acknowledged yet.
func (o *offsets) raises(offsets map[string]int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, offset := range offsets {
		if have, ok := o.committed[key]; !ok || have < offset {
			return true
		}
	}
	return false
}

// raise takes note of acknowledged offsets, and of what was read to find them.
func (o *offsets) raise(offsets map[string]int64, next int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, offset := range offsets {
		if have, ok := o.committed[key]; !ok || have < offset {
			o.committed[key] = offset
		}
	}
	o.next = max(o.next, next)
}

func (o *offsets) read() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.next
}

// of returns those of some keys.
func (o *offsets) of(keys []string) map[string]int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	wanted := maps.Clone(o.committed)
	maps.DeleteFunc(wanted, func(key string, _ int64) bool { return !slices.Contains(keys, key) })
	return wanted
}

// commit makes offsets durable. It is never sure that a commit was refused, and
// may be tried again whatever became of it, since only the greatest counts.
func (s *service) commit(ctx context.Context, offsets map[string]int64) error {
	if !s.offsets.raises(offsets) {
		return nil
	}
	value, err := json.Marshal(offsets)
	if err != nil {
		return err
	}
	for {
		_, err := s.produce(ctx, offsetsTopic, nil, value)
		if err == nil {
			s.offsets.raise(offsets, 0)
			return nil
		}
		if errors.Is(err, errRefused) || !wait(ctx) {
			return fmt.Errorf("%w: commit: %v", errUnknown, err)
		}
	}
}

// list returns the committed offsets of those keys that have one: all that was
// acknowledged before, on any node. An error matches errUnavailable.
func (s *service) list(ctx context.Context, keys []string) (map[string]int64, error) {
	found, err := s.read(ctx, map[string]int64{offsetsTopic: s.offsets.read()})
	if err != nil {
		return nil, err
	}
	for _, e := range found[offsetsTopic] {
		var offsets map[string]int64
		if err := json.Unmarshal(e.Msg, &offsets); err != nil {
			return nil, fmt.Errorf("%w: %s at %d: %v", errRefused, offsetsTopic, e.Offset, err)
		}
		s.offsets.raise(offsets, e.Offset+1)
	}
	return s.offsets.of(keys), nil
}
