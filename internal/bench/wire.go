package bench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// wire is one kept HTTP connection that posts bodies to one path, one after the other. net/http would do,
// but it takes half of a small machine's processors, which the server is to have.
type wire struct {
	conn net.Conn
	in   *bufio.Reader
	head string
	out  bytes.Buffer
	body bytes.Buffer // of the last answer
}

// dial connects to a process that serves http://host:port.
func dial(url, path string) (*wire, error) {
	host := strings.TrimPrefix(url, "http://")
	conn, err := net.Dial("tcp", host)
	if err != nil {
		return nil, err
	}
	return &wire{conn: conn, in: bufio.NewReaderSize(conn, 16<<10),
		head: "POST " + path + " HTTP/1.1\r\nHost: " + host +
			"\r\nContent-Type: application/json\r\nContent-Length: "}, nil
}

// post sends a body and reads the answer, which is an error unless it has the status 201.
func (w *wire) post(body string) error {
	w.out.Reset()
	w.out.WriteString(w.head)
	w.out.WriteString(strconv.Itoa(len(body)))
	w.out.WriteString("\r\n\r\n")
	w.out.WriteString(body)
	if _, err := w.conn.Write(w.out.Bytes()); err != nil {
		return err
	}
	status, err := w.line()
	if err != nil {
		return err
	}
	length, chunked, err := w.readHeader()
	if err != nil {
		return err
	}
	if err := w.readBody(length, chunked); err != nil {
		return err
	}
	if !strings.Contains(status, " 201 ") {
		return fmt.Errorf("a post was answered %s: %.300s", status, w.body.Bytes())
	}
	return nil
}

// readHeader reads the header of an answer, and says how long its body is, or that it comes in chunks.
func (w *wire) readHeader() (length int, chunked bool, err error) {
	for {
		line, err := w.line()
		if err != nil || line == "" {
			return length, chunked, err
		}
		name, value, _ := strings.Cut(line, ":")
		switch {
		case strings.EqualFold(name, "Content-Length"):
			if length, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
				return 0, false, err
			}
		case strings.EqualFold(name, "Transfer-Encoding"):
			chunked = true
		}
	}
}

// readBody reads a body of so many bytes, or all of its chunks, into w.body.
func (w *wire) readBody(length int, chunked bool) error {
	w.body.Reset()
	for {
		if chunked {
			line, err := w.line()
			if err != nil {
				return err
			}
			n, err := strconv.ParseInt(line, 16, 32)
			if err != nil {
				return err
			}
			length = int(n)
		}
		if _, err := io.CopyN(&w.body, w.in, int64(length)); err != nil {
			return err
		}
		if !chunked {
			return nil
		}
		if _, err := w.line(); err != nil {
			return err
		}
		if length == 0 {
			return nil
		}
	}
}

func (w *wire) line() (string, error) {
	b, err := w.in.ReadSlice('\n')
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return strings.TrimRight(string(b), "\r\n"), err
}
