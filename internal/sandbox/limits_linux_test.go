package sandbox

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// next says whether the box goes on with the next script.
func next(t *testing.T, b *Box) {
	t.Helper()
	if o, _ := outcome(t, b, "print('next')"); o.Result["stdout"] != "next\n" {
		t.Errorf("the next script: %+v", o)
	}
}

func TestAForkBombIsContained(t *testing.T) {
	b := newBox(t, Config{Limits: Limits{Grace: time.Second}})
	p, lines := python(t, b, Script{Timeout: 3 * time.Second, Text: `
import os, time
full = 0
while True:
    try: os.fork()
    except OSError:
        if not full: print("full", flush=True)
        full = 1; time.sleep(0.01)`})
	if o := p.Wait(); o.Code != CodeTimedOut || !strings.Contains(lines.text("stdout"), "full") {
		t.Errorf("%+v: want a bomb that finds no more processes, and that its timeout ends", o)
	}
	next(t, b)
}

func TestMemoryIsBounded(t *testing.T) {
	b := newBox(t, Config{Limits: Limits{Memory: 256 << 20}, Interpreters: map[string]Interpreter{
		"python": {Argv: []string{"python3", "-I", "{file}"}, Ext: ".py", Unmapped: true},
	}})
	mapped := newBox(t, Config{Limits: Limits{Memory: 256 << 20}})
	o, _ := outcome(t, mapped, "bytearray(1 << 31)")
	if o.Code != CodeExit || !strings.Contains(o.Error, "MemoryError") {
		t.Errorf("one process above its address space: %+v", o)
	}
	if o, _ := outcome(t, b, "bytearray(1 << 30); print('has it')\nimport time; time.sleep(60)"); o.Code != CodeMemory {
		t.Errorf("one process whose address space has no limit: %+v", o)
	}
	o, _ = outcome(t, mapped, `
import os, time
for n in range(8):
    if os.fork() == 0:
        x = bytearray(100 << 20); time.sleep(60)
time.sleep(60)`)
	if o.Code != CodeMemory {
		t.Errorf("eight processes, each of which may: %+v", o)
	}
	shared, _ := outcome(t, mapped, `
import mmap, os, time
x = mmap.mmap(-1, 150 << 20)
for n in range(150): x.write(bytes(1 << 20))
for n in range(8):
    if os.fork() == 0:
        for page in range(0, 150 << 20, 4096): x[page]
        os._exit(0)
for n in range(8): os.wait()`)
	if shared.Code != "" {
		t.Errorf("eight processes that share what one may have: %+v", shared)
	}
	o, _ = outcome(t, mapped, "f = open('/tmp/x', 'wb')\nfor n in range(1 << 10): f.write(bytes(1 << 20))")
	if o.Code != CodeExit {
		t.Errorf("a file in memory: %+v", o)
	}
	if o, _ := outcome(t, mapped, `
import os
files = []
for n in range(100):
    f = os.memfd_create("x"); files.append(f)
    for m in range(32): os.write(f, bytes(1 << 20))`); o.Code != CodeExit {
		t.Errorf("files without a name in memory: %+v", o)
	}
	next(t, b)
}

func TestOutputIsReadToItsEndAndToldToItsLimit(t *testing.T) {
	b := newBox(t, Config{})
	before := heap()
	o, lines := outcome(t, b, `
import sys
line = b"x" * 1023 + b"\n"
for n in range(1 << 20): sys.stdout.buffer.write(line)
sys.stdout.buffer.write(b"the end")`)
	told := len(lines.text("stdout"))
	if o.Code != "" || o.Usage.Output != 1<<30+7 || told > 1<<20 || told < 900<<10 ||
		!strings.HasSuffix(o.Result["stdout"], "the end") {
		t.Errorf("1 GiB: told %d bytes, %d read, code %q %s", told, o.Usage.Output, o.Code, o.Error)
	}
	if after := heap(); after > before+16<<20 {
		t.Errorf("the heap has grown from %d to %d bytes", before, after)
	}
	if n := strings.Count(lines.text("runner"), "\n"); n != 1 {
		t.Errorf("%d words about the cut, want one", n)
	}
	next(t, b)
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestLinesAreText(t *testing.T) {
	var got []Line
	o := &output{left: 1 << 20, sink: func(l Line) { got = append(got, l) }}
	long := strings.Repeat("ä", longestLine)
	text := "a\r\n\n\xff\xfe\x00b\n" + long + "\n" + strings.Repeat("\x00", longestLine) + "\nend"
	tail := o.read("stdout", strings.NewReader(text), 3)
	var whole strings.Builder
	for _, l := range got {
		if len(l.Text) > longestLine || strings.ContainsAny(l.Text, "\x00\n") ||
			strings.ToValidUTF8(l.Text, "") != l.Text {
			t.Errorf("%d bytes: %.20q", len(l.Text), l.Text)
		}
		whole.WriteString(l.Text + "|")
	}
	have, want := whole.String(), "a||\uFFFD\uFFFDb|"
	if !strings.HasPrefix(have, want) || strings.Count(have, "ä") != longestLine {
		t.Errorf("%.40q: want %q and all of the long line", have, want)
	}
	if tail != "end" || got[len(got)-1].Text != "end" {
		t.Errorf("tail %q, last %q", tail, got[len(got)-1].Text)
	}
	got, o.left = nil, 1000
	o.read("stdout", strings.NewReader(strings.Repeat("\n", 100000)), 1)
	if len(got) > 40 {
		t.Errorf("%d empty lines", len(got))
	}
}

func TestAResultIsAnObjectOfStringsInARegularFile(t *testing.T) {
	b := newBox(t, Config{Limits: Limits{FileSize: 16 << 30}})
	for what, text := range map[string]string{
		"a FIFO":              "os.mkfifo(r)",
		"a symlink":           "os.symlink('/etc/passwd', r)",
		"a symlink to itself": "os.symlink(r, r)",
		"a directory":         "os.mkdir(r)",
		"a socket":            "import socket; socket.socket(socket.AF_UNIX).bind(r)",
		"10 GiB":              "open(r, 'w').truncate(10 << 30)",
		"64 KiB and a bit":    "open(r, 'w').write('{\"a\": \"' + 'x' * 65536 + '\"}')",
		"no JSON":             "open(r, 'w').write('{')",
		"a list":              "open(r, 'w').write('[]')",
		"null":                "open(r, 'w').write('null')",
		"a number in it":      "open(r, 'w').write('{\"a\": 3}')",
		"null in it":          "open(r, 'w').write('{\"a\": null}')",
		"a character 0 in it": `open(r, 'w').write('{"a": "\\u0000"}')`,
		"two values":          "open(r, 'w').write('{} {}')",
		"64 KiB as JSON":      "open(r, 'wb').write(b'{\"a\": \"' + b'\\xff' * 30000 + b'\"}')",
	} {
		o, _ := outcome(t, b, "import os; r = os.environ['POSTERN_RESULT']\n"+text)
		if o.Code != CodeBadResult || o.Error == "" || o.Result != nil {
			t.Errorf("%s: %+v, want bad_result", what, o)
		}
	}
	for text, want := range map[string]string{
		"open(r, 'w').write('{}')":                              `{}`,
		"open(r, 'w').write('')":                                `{"stdout":""}`,
		"open(r, 'w').write('{\"ä\": \"\\\\ud83d\\\\ude00\"}')": `{"ä":"😀"}`,
		"print('x' * 100000)":                                   `{"stdout":"` + strings.Repeat("x", 65521) + `\n"}`,
		"print('\"' * 100000, end='')":                          `{"stdout":"` + strings.Repeat(`\"`, 32761) + `"}`,
	} {
		o, _ := outcome(t, b, "import os; r = os.environ['POSTERN_RESULT']\n"+text)
		if got, _ := json.Marshal(o.Result); o.Code != "" || string(got) != want {
			t.Errorf("%s: %.100s %+v, want %.100s", text, got, o, want)
		}
	}
}

func TestWhatAScriptDoesToItsDirectoryDoesNotLast(t *testing.T) {
	b := newBox(t, Config{})
	o, lines := outcome(t, b, `
import os
os.makedirs("a/b/c"); open("a/b/c/f", "w").write("x"); os.symlink("/etc", "a/etc"); os.mkfifo("a/fifo")
for d in ("a/b/c", "a/b", "a", "."): os.chmod(d, 0)`)
	if o.Code != "" || lines.text("runner") != "" {
		t.Errorf("%+v %s", o, lines.text("runner"))
	}
	if left, _ := os.ReadDir(filepath.Join(b.config.State, "contexts/default")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// SANDBOX_TEST_SCRIPTS=1000 runs so many scripts, else 30.
func TestManyScriptsLeaveNothingBehind(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("SANDBOX_TEST_SCRIPTS"))
	n = or(n, 30)
	b := newBox(t, Config{Limits: Limits{Memory: 256 << 20, Grace: 100 * time.Millisecond}})
	texts := []struct{ text, code string }{
		{"print('x')", ""},
		{"import os; os.mkfifo(os.environ['POSTERN_RESULT'])", CodeBadResult},
		{"bytearray(1 << 31)", CodeExit},
		{"import os, time\nif os.fork() == 0: os.setsid(); time.sleep(600)", ""},
		{"import sys; sys.exit(3)", CodeExit},
		{"import os; os.kill(0, 9)", CodeSignal},
		{"import sys\nfor n in range(2000): print('x' * 1000)", ""},
	}
	round := func(from, to int) {
		for i := from; i < to; i++ {
			p, err := b.Start(Script{
				Context: "default",
				Name:    "try-" + strconv.Itoa(i),
				Type:    "python",
				Text:    texts[i%len(texts)].text,
				Timeout: time.Minute,
			}, func(Line) {})
			if err != nil {
				t.Fatal(err)
			}
			if o := p.Wait(); o.Code != texts[i%len(texts)].code || strings.Contains(o.Error, "goroutine") {
				t.Errorf("script %d, %q: %+v", i, texts[i%len(texts)].text, o)
			}
		}
	}
	round(0, len(texts))
	state := func() (goroutines, files int, memory uint64) {
		entries, _ := os.ReadDir("/proc/self/fd")
		return runtime.NumGoroutine(), len(entries), heap()
	}
	goroutines, files, memory := state()
	round(len(texts), n)
	var g, f int
	var m uint64
	waitUntil(t, "goroutines, files and memory are where they were", func() bool {
		g, f, m = state()
		return g <= goroutines && f <= files && m < memory+4<<20
	})
	t.Logf("after %d scripts: goroutines %d -> %d, files %d -> %d, heap %d -> %d",
		n, goroutines, g, files, f, memory, m)
	if left, _ := os.ReadDir(filepath.Join(b.config.State, "contexts/default")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Scripts that begin on a busy machine, eight at a time: nothing of what starts them fails. SANDBOX_TEST_SCRIPTS=1000
// runs so many scripts, else 200.
func TestScriptsBeginOnABusyMachine(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("SANDBOX_TEST_SCRIPTS"))
	n = or(n, 200)
	b := newBox(t, Config{Limits: Limits{Memory: 64 << 20}, Interpreters: map[string]Interpreter{
		"sh": {Argv: []string{"/bin/sh", "{file}"}, Ext: ".sh"},
	}})
	next := make(chan int)
	var all sync.WaitGroup
	for slot := range 8 {
		all.Go(func() {
			for i := range next {
				s := Script{Context: "default", Name: "try-" + strconv.Itoa(i), Slot: slot, Type: "sh", Text: "exit 0",
					Timeout: time.Minute}
				lines := &told{}
				p, err := b.Start(s, lines.add)
				if err != nil {
					t.Error(err)
					continue
				}
				if o := p.Wait(); o.Code != "" {
					t.Errorf("script %d: %s: %.300s", i, o.Code, lines.text("stderr"))
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
}

func TestStrictBoundsAllTogetherOrIsRefused(t *testing.T) {
	c := Config{State: stateDir(t), Least: Strict, Limits: Limits{Memory: 128 << 20}}
	b, err := New(t.Context(), c)
	if err != nil {
		if !strings.Contains(err.Error(), "--isolation partial") || !strings.Contains(err.Error(), "--cgroup") {
			t.Errorf("%v: want a refusal that says what to do", err)
		}
		t.Skip(err)
	}
	o, _ := outcome(t, b, `
import os, time
for n in range(8):
    if os.fork() == 0:
        x = bytearray(100 << 20); time.sleep(60)
for n in range(8): os.wait()`)
	if o.Code != CodeMemory || o.Level != Strict {
		t.Errorf("%+v: want memory, under strict", o)
	}
	next(t, b)
}
