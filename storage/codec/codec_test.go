package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/pawlbroker/pawl/storage/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var all = []int8{None, Gzip, Snappy, LZ4, Zstd}

// payloads are inputs of every kind of size and entropy.
func payloads() [][]byte {
	rnd := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 300_000)
	for i := range noise {
		noise[i] = byte(rnd.Uint32())
	}
	var json []byte
	for i := range 5000 {
		json = fmt.Appendf(json, `{"id":%d,"user":"user-%d","amount":%d}`, i, rnd.IntN(100), rnd.IntN(1e6))
	}
	return [][]byte{{}, {7}, []byte("hello"), make([]byte, 65536), make([]byte, 5<<20), noise[:100], noise, json[:1000], json}
}

func TestDecompressGivesBackWhatCompressTook(t *testing.T) {
	for _, id := range all {
		for i, p := range payloads() {
			packed, err := Compress(id, []byte("before"), p)
			if err != nil || !bytes.HasPrefix(packed, []byte("before")) {
				t.Fatalf("%s payload %d: compress: %v", Name(id), i, err)
			}
			packed = packed[len("before"):]
			for _, limit := range []int{len(p), len(p) + 1, 2*len(p) + 1000} {
				got, err := Decompress(id, packed, limit)
				if err != nil || !bytes.Equal(got, p) {
					t.Fatalf("%s payload %d limit %d: %d bytes, want %d: %v", Name(id), i, limit, len(got), len(p), err)
				}
			}
			if len(p) == 0 {
				continue
			}
			if _, err := Decompress(id, packed, len(p)-1); !errors.Is(err, ErrTooLarge) {
				t.Fatalf("%s payload %d with a byte too few: %v", Name(id), i, err)
			}
		}
	}
}

// The files are the work of the reference tools: lz4 1.9, zstd 1.5, GNU gzip and
// Rust's snap, run on the output of
//
//	seq -f 'record %g of the story, and again' 1 6000
func TestDecompressReadsWhatOtherToolsWrote(t *testing.T) {
	var want []byte
	for i := 1; i <= 6000; i++ {
		want = fmt.Appendf(want, "record %d of the story, and again\n", i)
	}
	byExtension := map[string]int8{".gz": Gzip, ".snappy": Snappy, ".lz4": LZ4, ".zst": Zstd}
	files, err := filepath.Glob("testdata/vectors/*")
	if err != nil || len(files) < 12 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		id, ok := byExtension[filepath.Ext(file)]
		if !ok {
			t.Fatalf("%s has an unknown extension", file)
		}
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, limit := range []int{len(want), 1 << 30} {
			if got, err := Decompress(id, src, limit); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s within %d: %d bytes, %v", file, limit, len(got), err)
			}
		}
		if _, err := Decompress(id, src, len(want)-1); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s with a byte too few: %v", file, err)
		}
		for n := 0; n < len(src); n += 1 + len(src)/200 {
			got, err := Decompress(id, src[:n], 1<<20)
			whole := err == nil && bytes.HasPrefix(want, got) // a cut between members, frames or chunks
			if !whole && !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s cut to %d: %d bytes, %v", file, n, len(got), err)
			}
		}
	}
}

func TestFranzGoUnderstandsUsAndWeIt(t *testing.T) {
	theirs := map[int8]kgo.CompressionCodec{
		Gzip: kgo.GzipCompression(), Snappy: kgo.SnappyCompression(), LZ4: kgo.Lz4Compression(), Zstd: kgo.ZstdCompression(),
	}
	for _, id := range all[1:] {
		c, err := kgo.DefaultCompressor(theirs[id])
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range payloads() {
			if len(p) == 0 {
				continue
			}
			packed, as := c.Compress(new(bytes.Buffer), p)
			if int8(as) != id {
				t.Fatalf("%s: compressed as %d", Name(id), as)
			}
			if got, err := Decompress(id, packed, len(p)); err != nil || !bytes.Equal(got, p) {
				t.Errorf("%s payload %d from franz-go: %d bytes, want %d: %v", Name(id), i, len(got), len(p), err)
			}
			packed, err = Compress(id, nil, p)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := kgo.DefaultDecompressor().Decompress(packed, as); err != nil || !bytes.Equal(got, p) {
				t.Errorf("%s payload %d to franz-go: %d bytes, want %d: %v", Name(id), i, len(got), len(p), err)
			}
		}
	}
}

func TestCompressIsTheSameEveryTime(t *testing.T) {
	for _, id := range all {
		for i, p := range payloads() {
			first, _ := Compress(id, nil, p)
			for range 3 {
				if _, err := Compress(id, nil, []byte("something else in between")); err != nil {
					t.Fatal(err)
				}
				if again, _ := Compress(id, nil, p); !bytes.Equal(first, again) {
					t.Errorf("%s payload %d differs", Name(id), i)
				}
			}
		}
	}
}

// xerial frames blocks as the Java client does.
func xerial(blocks ...[]byte) []byte {
	out := []byte("\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
	for _, b := range blocks {
		packed, _ := Compress(Snappy, nil, b)
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(packed))), packed...)
	}
	return out
}

func TestSnappyOfTheJavaClient(t *testing.T) {
	// "a" as a literal, and eight more of it by a copy from one byte back.
	vector := []byte("\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x05\x09\x00a\x11\x01")
	for _, c := range []struct {
		src  []byte
		want string
	}{
		{vector, "aaaaaaaaa"},
		{vector[20:], "aaaaaaaaa"},
		{xerial(), ""},
		{xerial([]byte("one"), nil, []byte("two")), "onetwo"},
		{append(xerial([]byte("joined")), xerial([]byte("outputs"))...), "joinedoutputs"},
	} {
		if got, err := Decompress(Snappy, c.src, len(c.want)); err != nil || string(got) != c.want {
			t.Errorf("% x: %q, %v", c.src, got, err)
		}
	}
	for name, src := range map[string][]byte{
		"length cut short":    append(xerial(), 0, 0, 1),
		"length too big":      append(xerial(), 0, 0, 0, 9, 1),
		"length negative":     append(xerial(), 0xff, 0xff, 0xff, 0xff, 1),
		"block empty":         append(xerial(), 0, 0, 0, 0),
		"block cut short":     append(xerial(), 0, 0, 0, 2, 9, 0),
		"header only in part": xerial()[:12],
		"nothing":             nil,
		"impossible length":   []byte("\x80\x80\x80\x80\x04\x00a"),
		"copy before start":   []byte("\x09\x00a\x11\x02"),
	} {
		if _, err := Decompress(Snappy, src, 1<<30); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// bombs become a gigabyte of zeros, or as much as the name says.
func bombs(t *testing.T) map[string]bomb {
	const total = 1 << 30
	zeros := make([]byte, 1<<20)
	repeated := func(id int8) []byte {
		packed, err := Compress(id, nil, zeros)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Repeat(packed, total/len(zeros))
	}
	whole := func(id int8) []byte {
		packed, err := Compress(id, nil, make([]byte, 32<<20))
		if err != nil {
			t.Fatal(err)
		}
		return packed
	}
	// One zstd frame of run-length blocks: 128 KiB from four bytes each.
	runs := append(bytes.Repeat([]byte{0x02, 0x00, 0x10, 0x00}, total/zstdBlock), 0x01, 0x00, 0x00)
	unsized := append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x88}, runs...)
	sized := append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0x00, 0x00, 0x00, 0x40}, runs...)
	chunks := make([][]byte, total/len(zeros))
	for i := range chunks {
		chunks[i] = zeros
	}
	return map[string]bomb{
		"gzip":                   {Gzip, repeated(Gzip)},
		"gzip of 32 MiB":         {Gzip, whole(Gzip)},
		"lz4":                    {LZ4, repeated(LZ4)},
		"lz4 of 32 MiB":          {LZ4, whole(LZ4)},
		"zstd":                   {Zstd, repeated(Zstd)},
		"zstd of 32 MiB":         {Zstd, whole(Zstd)},
		"zstd runs without size": {Zstd, unsized},
		"zstd runs with size":    {Zstd, sized},
		"snappy of 32 MiB":       {Snappy, whole(Snappy)},
		"snappy as by Java":      {Snappy, xerial(chunks...)},
	}
}

type bomb struct {
	id  int8
	src []byte
}

func TestBombsAreRefusedWithinTheirBound(t *testing.T) {
	for name, b := range bombs(t) {
		for _, limit := range []int{64 << 10, 4 << 20} {
			took := allocated(func() {
				if _, err := Decompress(b.id, b.src, limit); !errors.Is(err, ErrTooLarge) || errors.Is(err, record.ErrCorrupt) {
					t.Errorf("%s of %d bytes: %v", name, len(b.src), err)
				}
			})
			// In all, of which a part at a time; and a decoder, if the pool has none.
			if took > uint64(4*limit+2<<20) {
				t.Errorf("%s took %d bytes for at most %d", name, took, limit)
			}
		}
	}
}

// allocated is how many bytes f takes from the heap.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestASmallInputTakesLittleWhateverItClaims(t *testing.T) {
	for name, c := range map[string]struct {
		id  int8
		src string
	}{
		"gzip":              {Gzip, "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\x03\x00\x00\x00\x00\x00\xff\xff\xff\x3f"},
		"snappy":            {Snappy, "\x80\x80\x80\x80\x01\x00a"},
		"snappy as by Java": {Snappy, string(xerial()) + "\x00\x00\x00\x07\x80\x80\x80\x80\x01\x00a"},
		"zstd":              {Zstd, "\x28\xb5\x2f\xfd\xa0\x00\x00\x00\x20\x01\x00\x00"},
		"zstd window":       {Zstd, "\x28\xb5\x2f\xfd\x00\x88\x09\x00\x00a"},
	} {
		took := allocated(func() {
			if _, err := Decompress(c.id, []byte(c.src), 1<<30); err != nil && !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s: %v", name, err)
			}
		})
		if took > 1<<20 {
			t.Errorf("%s took %d bytes", name, took)
		}
	}
}

func TestWhatIsNotTheCodecsIsCorrupt(t *testing.T) {
	long := strings.Repeat("garbage ", 1000)
	for _, id := range all[1:] {
		for _, src := range []string{"\x01", "garbage", long} {
			if _, err := Decompress(id, []byte(src), 1<<20); !errors.Is(err, ErrCorrupt) || !errors.Is(err, record.ErrInvalid) {
				t.Errorf("%s of %.8q: %v", Name(id), src, err)
			}
		}
		packed, _ := Compress(id, nil, []byte(long))
		if _, err := Decompress(id, append(packed, "tail"...), 1<<20); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s with a tail: %v", Name(id), err)
		}
	}
	legacy := "\x02\x21\x4c\x18\x02\x00\x00\x00\x10a"
	if _, err := Decompress(LZ4, []byte(legacy), 100); !errors.Is(err, ErrCorrupt) {
		t.Errorf("lz4 of the legacy format: %v", err)
	}
}

func TestUnknownCodecsAreUnknown(t *testing.T) {
	for _, id := range []int8{-1, 5, 6, 7, 127} {
		if _, err := Decompress(id, []byte("x"), 10); !errors.Is(err, ErrUnknownCodec) {
			t.Errorf("decompress %d: %v", id, err)
		}
		if _, err := Compress(id, nil, nil); !errors.Is(err, ErrUnknownCodec) {
			t.Errorf("compress %d: %v", id, err)
		}
	}
	for _, id := range all {
		if got, err := Parse(Name(id)); err != nil || got != id {
			t.Errorf("%s is %d, %v", Name(id), got, err)
		}
	}
	if _, err := Parse("lzma"); !errors.Is(err, ErrUnknownCodec) {
		t.Errorf("lzma: %v", err)
	}
}

func TestManyGoroutinesShareThePools(t *testing.T) {
	var done sync.WaitGroup
	for g := range 16 {
		done.Go(func() {
			for i := range 40 {
				id, p := all[i%len(all)], bytes.Repeat([]byte{byte(g), byte(i)}, 1000*(g+1))
				packed, err := Compress(id, nil, p)
				if err != nil {
					t.Error(err)
				}
				if got, err := Decompress(id, packed, len(p)); err != nil || !bytes.Equal(got, p) {
					t.Errorf("%s: %d bytes, want %d: %v", Name(id), len(got), len(p), err)
				}
			}
		})
	}
	done.Wait()
}
