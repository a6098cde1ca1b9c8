package app_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pgtest"
)

// tap passes on connections to PostgreSQL, and counts the statements that are executed on them by their texts.
type tap struct {
	t        *testing.T
	listener net.Listener
	target   string
	mu       sync.Mutex
	executed map[string]int
}

// newTap returns a tap on a database, and its URL through that.
func newTap(t *testing.T, database string) (*tap, string) {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	x := &tap{t: t, listener: l, target: u.Host, executed: map[string]int{}}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go x.pass(c)
		}
	}()
	u.Host = l.Addr().String()
	q := u.Query()
	q.Set("sslmode", "disable") // so that it can be read
	u.RawQuery = q.Encode()
	return x, u.String()
}

// pass carries one connection to its end.
func (x *tap) pass(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", x.target)
	if err != nil {
		return
	}
	defer server.Close()
	read, write := io.Pipe()
	defer write.Close()
	go x.read(read)
	go func() {
		io.Copy(client, server)
		client.Close()
	}()
	io.Copy(io.MultiWriter(server, write), client)
}

// read reads what a client sends: the startup message, and then messages with a letter and a length.
func (x *tap) read(r *io.PipeReader) {
	defer io.Copy(io.Discard, r) // what cannot be read goes through all the same
	texts := map[string]string{}
	in := bufio.NewReader(r)
	head := make([]byte, 5)
	for started := false; ; started = true {
		at := head
		if !started {
			at = head[1:]
		}
		if _, err := io.ReadFull(in, at); err != nil {
			return
		}
		body := make([]byte, max(0, int(binary.BigEndian.Uint32(head[1:]))-4))
		if _, err := io.ReadFull(in, body); err != nil {
			return
		}
		first, rest, _ := bytes.Cut(body, []byte{0})
		second, _, _ := bytes.Cut(rest, []byte{0})
		switch head[0] {
		case 'P':
			texts[string(first)] = string(second)
		case 'B':
			x.count(texts[string(second)])
		case 'Q':
			x.count(string(first))
		}
	}
}

func (x *tap) count(sql string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.executed[sql]++
}

// during counts the statements of a time whose texts match.
func (x *tap) during(d time.Duration, which *regexp.Regexp) (n, all int, texts map[string]int) {
	x.mu.Lock()
	x.executed = map[string]int{}
	x.mu.Unlock()
	time.Sleep(d)
	x.mu.Lock()
	defer x.mu.Unlock()
	texts = map[string]int{}
	for sql, k := range x.executed {
		if all += k; which.MatchString(sql) {
			n += k
			texts[sql] = k
		}
	}
	return n, all, texts
}

// ofJobs are statements about jobs; polls, those that ask what became of tries.
var (
	ofJobs = regexp.MustCompile(
		`(?:FROM|UPDATE|INTO|JOIN)\s+postern\.` +
			`(?:job|job_\w+|flow|flow_step|runner|try_\w+|message|message_\w+|peer|peer_secret)\b`)
	ofMessages = regexp.MustCompile(`postern\.(?:message|peer)`)
	ofKinds    = regexp.MustCompile(`EXISTS \(SELECT FROM postern\.job\)`)
	polls      = regexp.MustCompile(`FROM postern\.job_try t WHERE t\.try_id = ANY`)
)

// Where no job was ever made, no statement is about jobs: a process that serves and works executes those that it
// executed before there were any. With the first job they begin. Jobs that are offered and that no runner takes are not
// asked about again, however many they are.
func TestNoStatementIsAboutJobsWhereThereAreNone(t *testing.T) {
	database := pgtest.New(t).URL
	x, through := newTap(t, database)
	b := &jobBench{t, clocked(t, map[string]string{"DATABASE_URL": through})}
	want(t, 200, "GET", b.url+"/transactions", "")
	n, all, texts := x.during(6*time.Second, ofJobs)
	for sql, k := range texts {
		if ofKinds.MatchString(sql) { // the one look for all that may be absent, which is read with the configuration
			n -= k
			continue
		}
		t.Errorf("%d times: %s", k, sql)
	}
	if all == 0 {
		t.Fatal("nothing was heard of what the process executes")
	}
	t.Logf("%d statements in 6 s, of them %d about jobs", all, n)

	const jobs = 300
	for i := range 3 {
		list := ""
		for k := range jobs / 3 {
			list += fmt.Sprintf(`,{"type": "job.python", "data": {"script": "1"}, "uid": "j%d-%d"}`, i, k)
		}
		if i == 0 { // it makes the types
			want(t, 201, "POST", b.url+"/jobs", `{"script": "print(1)", "script_type": "python"}`)
		}
		want(t, 201, "POST", b.url+"/transactions:batch", `{"items": [`+list[1:]+`]}`)
	}
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var offered, soon int
	for end := time.Now().Add(2 * time.Minute); offered <= jobs && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
		if err := conn.QueryRow(t.Context(), `SELECT count(*),
				count(*) FILTER (WHERE t.due_at < now() + interval '20 h')
			FROM postern.timer t
			JOIN postern.job_try j USING (queue_id)
			JOIN postern.queue q USING (queue_id)
			WHERE q.phase = 'WAITING_INCLUSION' AND j.state = 'Offered'`).Scan(&offered, &soon); err != nil {
			t.Fatal(err)
		}
	}
	if offered != jobs+1 || soon != 0 {
		t.Errorf("%d of %d jobs are offered, and %d are asked about within 20 h", offered, jobs+1, soon)
	}
	n, all, _ = x.during(4*time.Second, ofJobs)
	_, _, about := x.during(4*time.Second, ofMessages)
	for sql, k := range about {
		if !ofKinds.MatchString(sql) {
			t.Errorf("with jobs and no message, %d times: %s", k, sql)
		}
	}
	asked, _, texts := x.during(4*time.Second, polls)
	if n == 0 || asked != 0 {
		t.Errorf("with %d offered jobs %d of %d statements are about jobs, and %d ask what became of them: %v", offered,
			n, all, asked, texts)
	}
	t.Logf("%d statements in 4 s with %d offered jobs, of them %d about jobs", all, offered, n)
}

// Where messages stay in this installation and no peer is known, no statement is about peers. Peers at which
// nothing is open are looked at once a second, and none is called.
func TestNoStatementIsAboutPeersWhereThereAreNone(t *testing.T) {
	x, through := newTap(t, pgtest.New(t).URL)
	b := &jobBench{t, clocked(t, map[string]string{"DATABASE_URL": through})}
	sent := want(t, 201, "POST", b.url+"/messages", `{"to": {"context": "default"}, "message_type": "chat",
		"message": "hello"}`)
	for want(t, 200, "GET", fmt.Sprint(b.url, "/messages/", sent["id"]), "")["delivered_at"] == nil {
		time.Sleep(20 * time.Millisecond)
	}
	ofPeers := regexp.MustCompile(`postern\.peer`)
	_, _, texts := x.during(4*time.Second, ofPeers)
	for sql, k := range texts {
		if !ofKinds.MatchString(sql) {
			t.Errorf("with messages and no peer, %d times: %s", k, sql)
		}
	}
	want(t, 201, "PUT", b.url+"/peers/far", fmt.Sprintf(`{"secret": %q,
		"url": "https://far.invalid/contexts/default/peers/near"}`, wireSecret))
	began := time.Now()
	n, _, texts := x.during(4*time.Second, ofPeers)
	if took := time.Since(began); float64(n) > 2*took.Seconds()+2 {
		t.Errorf("%d statements about a peer in %s at which nothing is open: %v", n, took, texts)
	}
}

// ofUnsettled are the looks for what has ended and the core has not heard of.
var ofUnsettled = regexp.MustCompile(`NOT (?:t|n)\.settled`)

// A prerequisite that is met while its type is paused stays as it is, since its transaction may not go out: it is
// looked for as often as all else, and not ten times a second for as long as the pause lasts.
func TestWhatStaysUnsettledIsLookedForAsRarelyAsAllElse(t *testing.T) {
	x, through := newTap(t, pgtest.New(t).URL)
	b := &jobBench{t, clocked(t, map[string]string{"DATABASE_URL": through})}
	want(t, 201, "POST", b.url+"/jobs", `{"script": "1", "script_type": "python"}`) // it makes the types
	want(t, 200, "POST", b.url+"/dispatchers/job.need/pause", `{}`)
	time.Sleep(2 * time.Second) // until each process knows it
	j := want(t, 201, "POST", b.url+"/jobs", `{"script": "1", "script_type": "python", "prerequisites": ["ok"]}`)
	want(t, 200, "POST", fmt.Sprint(b.url, "/jobs/", j["id"], "/prerequisites"), `{"met": ["ok"]}`)
	time.Sleep(7 * time.Second) // it is fresh for five of them
	const most = 3
	began := time.Now()
	n, _, texts := x.during(6*time.Second, ofUnsettled)
	if took := time.Since(began); n == 0 || float64(n) > most*took.Seconds() {
		t.Errorf("%d looks in %s, want %d a second at most: %v", n, took, most, texts)
	}
	path := fmt.Sprint(b.url, "/transactions/", j["transaction"])
	if tx := want(t, 200, "GET", path, ""); tx["state"] != "WAITING" {
		t.Errorf("the transaction of the job is %v", tx["state"])
	}
	want(t, 200, "POST", b.url+"/dispatchers/job.need/resume", `{}`)
	for end := time.Now().Add(time.Minute); want(t, 200, "GET", path, "")["state"] != "REVISION"; {
		if time.Sleep(50 * time.Millisecond); time.Now().After(end) {
			t.Fatal("a minute after the pause no runner is offered the job")
		}
	}
}
