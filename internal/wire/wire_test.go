package wire_test

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/wire"
)

func TestALookTellsWhatHasBecomeOfAConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	becomes := func(want wire.State) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); wire.Look(raw) != want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("a look says %v, want %v", wire.Look(raw), want)
			}
		}
	}
	becomes(wire.Quiet)
	if _, err := other.Write([]byte("a")); err != nil {
		t.Fatal(err)
	}
	becomes(wire.Talking)
	var b [1]byte
	if n, err := conn.Read(b[:]); n != 1 || err != nil {
		t.Fatalf("a look took what had come: read %d, %v", n, err)
	}
	becomes(wire.Quiet)
	other.Close()
	becomes(wire.Gone)
	conn.Close()
	if got := wire.Look(raw); got != wire.Gone {
		t.Errorf("a look at what is closed here says %v", got)
	}
}
