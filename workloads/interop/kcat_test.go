//go:build interop

package interop

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// kcat runs kcat with arguments, and returns what it prints.
func kcat(t *testing.T, addr, stdin string, args ...string) string {
	t.Helper()
	return command{stdin: stdin, args: append([]string{"kcat", "-b", addr}, args...)}.output(t)
}

func needKcat(t *testing.T) {
	t.Helper()
	need(t, "kcat", "apt-get install kcat")
}

// input is n lines for kcat: key, a colon, value.
func input(n int) string {
	var s strings.Builder
	for i := range n {
		fmt.Fprintf(&s, "k-%d:v-%d%s\n", i, i, strings.Repeat(".", 100))
	}
	return s.String()
}

// TestKcatWrites with every codec and every acks. A librdkafka that thinks the
// broker does not know a codec sends uncompressed batches and says nothing.
func TestKcatWrites(t *testing.T) {
	needKcat(t)
	addr := serve(t)
	for _, codec := range codecs {
		for _, acks := range []string{"0", "1", "all"} {
			topic := "kcat-" + codec + "-" + acks
			kcat(t, addr, input(1000), "-P", "-t", topic, "-p", "0", "-K:", "-z", codec, "-X", "acks="+acks, "-X", "linger.ms=100")
			verify(t, addr, topic, 1000, codec)
		}
	}
	kcat(t, addr, input(1000), "-P", "-t", "kcat-idempotent", "-p", "0", "-K:", "-X", "enable.idempotence=true")
	verify(t, addr, "kcat-idempotent", 1000, "none")
}

// TestKcatReads from everywhere in a log with ten records, whose times are 1000,
// 2000 and so on.
func TestKcatReads(t *testing.T) {
	needKcat(t)
	addr := serve(t)
	c := franz(t, addr, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := range 10 {
		r := numbered("t", i)
		r.Timestamp = time.UnixMilli(int64(1000 * (i + 1)))
		if err := c.ProduceSync(t.Context(), r).FirstErr(); err != nil { // one batch each
			t.Fatal(err)
		}
	}
	for from, want := range map[string]string{
		"beginning": "0 1 2 3 4 5 6 7 8 9", "end": "", "-3": "7 8 9", "4": "4 5 6 7 8 9", "10": "", "s@5000": "4 5 6 7 8 9", "s@5001": "5 6 7 8 9", "s@99999": "",
	} {
		got := kcat(t, addr, "", "-C", "-t", "t", "-p", "0", "-o", from, "-e", "-q", "-f", "%o ")
		if strings.TrimSpace(got) != want {
			t.Errorf("from %s: offsets %q, want %q", from, got, want)
		}
	}
	if got := kcat(t, addr, "", "-C", "-t", "t", "-o", "s@3000", "-o", "e@5000", "-q", "-e", "-f", "%o "); strings.TrimSpace(got) != "2 3" {
		t.Errorf("from 3000 until 5000: offsets %q", got)
	}
	for at, want := range map[string]string{"-1": "10", "-2": "0", "2500": "2", "99999": "-1"} {
		if got := kcat(t, addr, "", "-Q", "-t", "t:0:"+at); !strings.HasSuffix(strings.TrimSpace(got), "offset "+want) {
			t.Errorf("-Q at %s: %q, want offset %s", at, got, want)
		}
	}
	got := kcat(t, addr, "", "-C", "-t", "t", "-p", "0", "-o", "beginning", "-c", "1", "-f", "%k|%T|%h|%S")
	if want := "k-0|1000|h=0|103"; got != want {
		t.Errorf("record 0 is %q, want %q", got, want)
	}
}

// TestKcatLists topics, brokers and partitions, and creates a topic that it is
// asked for.
func TestKcatLists(t *testing.T) {
	needKcat(t)
	addr := serve(t)
	fill(t, addr, "t", 1)
	var list struct {
		Brokers []struct {
			ID   int
			Name string
		}
		Topics []struct {
			Topic      string
			Partitions []struct{ Partition, Leader int }
		}
	}
	if err := json.Unmarshal([]byte(kcat(t, addr, "", "-L", "-J")), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Brokers) != 1 || list.Brokers[0].Name != addr || len(list.Topics) != 1 || list.Topics[0].Topic != "t" || list.Topics[0].Partitions[0].Leader != 1 {
		t.Errorf("%+v", list)
	}
	if got := kcat(t, addr, "", "-L", "-t", "t"); !strings.Contains(got, `topic "t" with 1 partitions`) {
		t.Errorf("-L -t t:\n%s", got)
	}
}

// TestKcatSpecials: headers, no key, no value, values that are empty or big.
func TestKcatSpecials(t *testing.T) {
	needKcat(t)
	addr := serve(t)
	kcat(t, addr, "k:v\n", "-P", "-t", "headers", "-K:", "-H", "a=1", "-H", "b=", "-H", "a=2")
	if got := kcat(t, addr, "", "-C", "-t", "headers", "-e", "-q", "-f", "%k %s %h"); got != "k v a=1,b=,a=2" {
		t.Errorf("headers: %q", got)
	}
	kcat(t, addr, "k:\n", "-P", "-t", "nulls", "-p", "0", "-K:", "-Z") // value null
	kcat(t, addr, "k:\n", "-P", "-t", "nulls", "-p", "0", "-K:")       // value empty
	kcat(t, addr, "v\n", "-P", "-t", "nulls", "-p", "0")               // no key
	if got := kcat(t, addr, "", "-C", "-t", "nulls", "-e", "-q", "-f", "%K,%S "); got != "1,-1 1,0 -1,1 " {
		t.Errorf("lengths of keys and values: %q", got)
	}
	big := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(big, []byte(strings.Repeat("x", 900_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		kcat(t, addr, "", "-P", "-t", "big", "-p", "0", big)
	}
	got := kcat(t, addr, "", "-C", "-t", "big", "-e", "-q", "-f", "%S ", "-X", "fetch.message.max.bytes=1000")
	if got != strings.Repeat(strconv.Itoa(900_000)+" ", 3) {
		t.Errorf("sizes of big records: %q", got)
	}
	c := command{args: []string{"kcat", "-b", addr, "-P", "-t", "big", "-p", "0", "-X", "message.max.bytes=3000000", big + "ger"}}
	if err := os.WriteFile(big+"ger", []byte(strings.Repeat("x", 2_000_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(c.args[0], c.args[1:]...).CombinedOutput()
	if !strings.Contains(string(out), "Message size too large") {
		t.Errorf("a record above max.message.bytes: %v, %s", err, out)
	}
}
