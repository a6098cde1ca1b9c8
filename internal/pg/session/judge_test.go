package session_test

import (
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/postern-dev/postern/internal/pg/session"
)

// A server whose lc_messages has another encoding refuses a session in that: all of its sentence can be read.
func TestARefusalInAnotherEncodingCanBeRead(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			refuse(c, "la base de donn\xe9es \xab x \xbb n'existe pas, d\xe9sol\xe9")
		}
	}()
	_, err = session.Connect(t.Context(), "postgres://u@"+l.Addr().String()+"/x?sslmode=disable")
	const want = `la base de donn\xe9es \xab x \xbb n'existe pas, d\xe9sol\xe9`
	if err == nil || !strings.Contains(err.Error(), want) || !utf8.ValidString(err.Error()) {
		t.Errorf("%v, want %s in it", err, want)
	}
}

// refuse reads how a session begins and refuses it.
func refuse(c net.Conn, message string) {
	defer c.Close()
	var length [4]byte
	if _, err := io.ReadFull(c, length[:]); err != nil {
		return
	}
	if _, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(length[:]))-4); err != nil {
		return
	}
	fields := "SFATAL\x00VFATAL\x00C3D000\x00M" + message + "\x00\x00"
	answer := binary.BigEndian.AppendUint32([]byte{'E'}, uint32(len(fields)+4))
	_, _ = c.Write(append(answer, fields...))
}
