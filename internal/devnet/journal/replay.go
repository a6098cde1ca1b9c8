package journal

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
)

// maxLine is more than any record has.
const maxLine = 16 << 20

// replay reads the records of f and cuts off a last one that is not whole.
func replay(f *os.File, read func(line []byte) error) error {
	in := bufio.NewReaderSize(f, 1<<20)
	var good int64 // bytes that hold whole records
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		text, ok := check(line)
		if !ok {
			if rest, _ := in.Peek(1); len(rest) > 0 { // a crash tears the end, nothing else
				return fmt.Errorf("record %d is damaged and others follow it: restore the file, or move it away to begin anew", n)
			}
			if len(line) == 0 {
				return nil
			}
			if err := f.Truncate(good); err != nil {
				return err
			}
			return f.Sync()
		}
		good += int64(len(line))
		if err := read(text); err != nil {
			return fmt.Errorf("record %d: %w", n, err)
		}
	}
}

// check takes a line apart and says whether it is whole.
func check(line []byte) (text []byte, ok bool) {
	if len(line) < 10 || len(line) > maxLine || line[len(line)-1] != '\n' || line[8] != ' ' {
		return nil, false
	}
	sum, err := strconv.ParseUint(string(line[:8]), 16, 32)
	text = bytes.TrimSuffix(line[9:], []byte("\n"))
	return text, err == nil && uint32(sum) == crc32.ChecksumIEEE(text)
}

// Rewrite puts a new journal in the place of the one at path. write calls add for each record, in the order of the new
// journal. A crash leaves the old one or the new one. An error if a process has the journal open.
func Rewrite(path string, write func(add func(record any) error) error) error {
	unlock, err := lock(path + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	fresh := path + ".new"
	f, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(f, 1<<20)
	err = write(func(record any) error {
		b, err := appendLine(nil, record)
		if err == nil {
			_, err = out.Write(b)
		}
		return err
	})
	if err == nil {
		err = out.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(fmt.Errorf("rewrite the journal %s: %w", path, err), os.Remove(fresh))
	}
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
