package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is one process of Postern that is started again whenever it ends.
type process struct {
	name, bin string
	args, env []string
	dir       string
	proxies   []*proxy // to each server of PostgreSQL
	api       string   // "" of a process without one
	metrics   string

	mu    sync.Mutex
	cmd   *exec.Cmd
	over  bool
	exits map[int]int
	lives []start
	told  bool     // the one that runs was told to end, or was killed
	alone []string // ends without that, each with its exit code and how far it had come
	ended chan struct{}
}

// start is one start of a process: when, and how the one before had ended, -1 if there was none.
type start struct {
	at    time.Time
	after int
}

// endsGoneBack is the exit code of a process whose database went back.
const endsGoneBack = 5

// unaware is when a process was first started since a moment without a word of the one before that the database went
// back: it has nothing to miss, and may send until another process has noticed. Zero: it was not.
func (p *process) unaware(since time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.lives {
		switch {
		case !s.at.After(since):
		case s.after == endsGoneBack:
			return time.Time{}
		default:
			return s.at
		}
	}
	return time.Time{}
}

// eachProxy does something with each of its proxies.
func (p *process) eachProxy(do func(*proxy)) {
	for _, x := range p.proxies {
		do(x)
	}
}

// starts is how often it was started.
func (p *process) starts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.lives)
}

// pid is 0 while it does not run.
func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil || p.cmd.Process == nil || p.cmd.ProcessState != nil {
		return 0
	}
	return p.cmd.Process.Pid
}

func (p *process) start() {
	p.exits, p.ended = map[int]int{}, make(chan struct{})
	go func() {
		defer close(p.ended)
		for after := -1; ; {
			p.mu.Lock()
			if p.over {
				p.mu.Unlock()
				return
			}
			log, err := os.OpenFile(filepath.Join(p.dir, p.name+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
			if err != nil {
				panic(err)
			}
			p.cmd = exec.Command(p.bin, p.args...)
			p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = p.env, log, log
			p.cmd.SysProcAttr = dieWithParent()
			from, _ := log.Seek(0, io.SeekEnd)
			err = p.cmd.Start()
			p.lives = append(p.lives, start{time.Now(), after})
			p.told = false
			cmd := p.cmd
			p.mu.Unlock()
			if err == nil {
				cmd.Wait()
				p.mu.Lock()
				after = cmd.ProcessState.ExitCode()
				p.exits[after]++
				if !p.told && !p.over {
					p.alone = append(p.alone, fmt.Sprintf("exit code %d%s", after, p.came(from)))
				}
				p.mu.Unlock()
			}
			log.Close()
			time.Sleep(200 * time.Millisecond)
		}
	}()
}

// signal sends s to the process if it runs, and says whether it did.
func (p *process) signal(s syscall.Signal) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil || p.cmd.Process == nil || p.cmd.ProcessState != nil || p.cmd.Process.Signal(s) != nil {
		return false
	}
	p.told = p.told || s == syscall.SIGTERM || s == syscall.SIGKILL
	return true
}

// began is how a log tells that the start of its process is over: it answers, or its node is known to the database.
func (p *process) began() []byte {
	if strings.Contains(p.name, "work") {
		return []byte(`"msg":"working"`)
	}
	return []byte(`"msg":"listening"`)
}

// came tells how far a process came whose log begins at a place: "" if it was still at its start.
func (p *process) came(from int64) string {
	text, err := os.ReadFile(filepath.Join(p.dir, p.name+".log"))
	if err == nil && bytes.Contains(text[min(from, int64(len(text))):], p.began()) {
		return " behind its start"
	}
	return ""
}

// mayEnd are ends of a process by itself that are right: one that finds no database at its start, and, behind a restore
// or a failover, one that the database does not know any more.
func mayEnd(end string, restored bool) bool {
	return end == "exit code 3" || restored && strings.HasPrefix(end, fmt.Sprint("exit code ", endsGoneBack))
}

// end stops the process for good, and says whether it ended within a time when it was told to.
func (p *process) end(within time.Duration) bool {
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	p.signal(syscall.SIGCONT)
	p.signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		return true
	case <-time.After(within):
		p.signal(syscall.SIGKILL)
		<-p.ended
		return false
	}
}

// await waits until the API answers.
func (p *process) await(d time.Duration) error {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if r, err := http.Get(p.api + "/readyz"); err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return nil
			}
		}
	}
	return fmt.Errorf("%s is not ready after %s: see %s/%s.log", p.name, d, p.dir, p.name)
}
