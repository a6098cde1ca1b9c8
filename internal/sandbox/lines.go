package sandbox

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"unicode/utf8"
)

const (
	longestLine = 16 << 10 // a longer one is told in pieces
	lineCost    = 32       // what a line counts beside its text, so that empty ones come to an end
	keptStdout  = 64 << 10 // becomes the result of a script that wrote no result file
	keptStderr  = 4 << 10  // becomes a part of the error
)

// Line is one line of the output, or a piece of one that is very long. Its text is valid UTF-8 without a byte 0.
type Line struct {
	Stream string // stdout, stderr, or runner for what we say ourselves
	Text   string
}

// output collects what a script writes. It never makes the script wait longer than the sink takes: the sandbox
// reads and drops the rest behind the limit.
type output struct {
	mu    sync.Mutex
	sink  func(Line)
	left  int64 // bytes that may still be told
	cut   bool
	bytes int64 // read in all
}

// read reads one stream to its end and returns its last bytes.
func (o *output) read(stream string, r io.Reader, keep int) string {
	tail := make([]byte, 0, 2*keep)
	var line []byte
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		tail = append(tail, buf[:n]...)
		if len(tail) > keep {
			tail = append(tail[:0], tail[len(tail)-keep:]...)
		}
		line = o.take(stream, line, buf[:n])
		if err != nil {
			if len(line) > 0 {
				o.tell(stream, line)
			}
			return clean(string(tail))
		}
	}
}

// take tells the lines in what came and returns the begin of the last one.
func (o *output) take(stream string, line, came []byte) []byte {
	o.mu.Lock()
	o.bytes += int64(len(came))
	drop := o.cut
	o.mu.Unlock()
	if drop {
		return line[:0]
	}
	for {
		i := bytes.IndexByte(came, '\n')
		if i < 0 {
			break
		}
		o.tell(stream, append(line, came[:i]...))
		line, came = line[:0], came[i+1:]
	}
	line = append(line, came...)
	for len(line) > longestLine {
		end := longestLine
		for end > longestLine-utf8.UTFMax && !utf8.RuneStart(line[end]) {
			end--
		}
		o.tell(stream, line[:end])
		line = append(line[:0], line[end:]...)
	}
	return line
}

// tell gives one line to the sink, in pieces if it has grown when it was made clean.
func (o *output) tell(stream string, line []byte) {
	text := clean(strings.TrimSuffix(string(line), "\r"))
	o.mu.Lock()
	defer o.mu.Unlock()
	for first := true; first || text != ""; first = false {
		end := min(len(text), longestLine)
		for end > 0 && end < len(text) && !utf8.RuneStart(text[end]) {
			end--
		}
		if o.left -= int64(end + lineCost); o.left < 0 {
			if !o.cut {
				o.cut = true
				o.sink(Line{"runner", "the output is longer than the log may be: what follows is dropped"})
			}
			return
		}
		o.sink(Line{stream, text[:end]})
		text = text[end:]
	}
}

// say tells a line of our own, also behind the cut.
func (o *output) say(text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sink(Line{"runner", clean(text)})
}

// clean makes text that PostgreSQL takes.
func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
