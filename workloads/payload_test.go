package workloads

import (
	"bytes"
	"errors"
	"testing"

	"github.com/pawlbroker/pawl/linearizability/history"
	"pgregory.net/rapid"
)

func TestPayloadReadsBackAndShowsEveryChangedByte(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := history.Value(rapid.Uint64().Draw(t, "value"))
		size := rapid.IntRange(0, 300).Draw(t, "size")
		prefix := []byte("before")
		b := AppendPayload(bytes.Clone(prefix), v, size)
		if !bytes.HasPrefix(b, prefix) || len(b) != len(prefix)+max(size, MinPayload) {
			t.Fatalf("%d bytes for size %d", len(b), size)
		}
		b = b[len(prefix):]
		if got, err := ParsePayload(b); err != nil || got != v {
			t.Fatalf("got %#x, %v, want %#x", got, err, v)
		}
		b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		if _, err := ParsePayload(b); !errors.Is(err, ErrPayload) {
			t.Fatalf("got %v for a changed payload, want ErrPayload", err)
		}
	})
	if _, err := ParsePayload(make([]byte, MinPayload-1)); !errors.Is(err, ErrPayload) {
		t.Errorf("got %v for a short payload, want ErrPayload", err)
	}
}

func TestValuesAreUniqueAndNameTheirClient(t *testing.T) {
	seen := make(map[history.Value]bool)
	for client := range history.Client(50) {
		for n := range uint64(50) {
			v := MakeValue(client, n)
			if v == 0 || seen[v] {
				t.Fatalf("client %d value %d: %#x is 0 or drawn before", client, n, v)
			}
			seen[v] = true
		}
	}
	if got := string(RecordKey(MakeValue(6, 3))); got != "c7" {
		t.Errorf("got key %q, want c7", got)
	}
}

func TestTokenReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := history.Value(rapid.Uint64().Draw(t, "token"))
		if got, err := ParseToken(FormatToken(want)); err != nil || got != want {
			t.Fatalf("got %#x, %v, want %#x", got, err, want)
		}
	})
	if got, err := ParseToken(""); err != nil || got != 0 {
		t.Errorf("got %#x, %v for no metadata, want 0", got, err)
	}
	for _, s := range []string{"token", "token 1 ", "token 01", "tok 5"} {
		if _, err := ParseToken(s); !errors.Is(err, ErrPayload) {
			t.Errorf("%q: got %v, want ErrPayload", s, err)
		}
	}
}
