package sandbox

import "time"

// Stop sends TERM to the group of the script, and KILL to all that is left of it after the time of grace.
func (p *Process) Stop() { p.stop() }

// Kill kills the script with all that it started, at once.
func (p *Process) Kill() { p.kill() }

// Wait returns when nothing of the script is alive and its directory is gone.
func (p *Process) Wait() Outcome {
	<-p.over
	return p.outcome
}

// supervise ends the script when its time is over, or earlier when it is told to.
func (p *Process) supervise() {
	exited := make(chan struct{})
	go func() {
		p.cmd.Wait()
		close(exited)
	}()
	timeout := time.NewTimer(p.script.Timeout)
	defer timeout.Stop()
	var code string
	var grace, hard <-chan time.Time
	stopped, killed := p.stopped, p.killed
	term := func(why string) {
		code = or(code, why)
		p.command(commandTerm)
		grace = time.After(p.box.config.Limits.Grace)
	}
	kill := func() {
		p.command(commandKill)
		grace, hard = nil, time.After(time.Second)
	}
	for {
		select {
		case <-timeout.C:
			term(CodeTimedOut)
		case <-stopped:
			stopped = nil
			term(CodeStopped)
		case <-killed:
			killed, code = nil, or(code, CodeStopped)
			kill()
		case <-grace:
			kill()
		case <-hard: // an init that does not answer takes its namespace with it
			if p.box.level != Off {
				p.cmd.Process.Kill()
			}
		case <-exited:
			p.conclude(code)
			return
		}
	}
}

func (p *Process) command(c byte) { p.commands.Write([]byte{c}) }
