package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// conclude says what became of the script, behind its end.
func (p *Process) conclude(code string) {
	defer close(p.over)
	for _, r := range p.reading { // a process that escaped, where there is no box, may hold the output
		r.SetReadDeadline(time.Now().Add(5 * time.Second))
	}
	stdout, stderr := <-p.stdout, <-p.stderr
	var end, failed report
	for r := range p.reports {
		if r.Ended {
			end = r
		} else if failed.Error == "" {
			failed = r
		}
	}
	os.Chmod(p.dir.path, 0o700) // the script may have taken the rights on it, which a runner without root needs
	result, bad := readResult(filepath.Join(p.dir.path, resultFile))
	end.Memory = end.Memory || p.cgroup.outOfMemory()
	p.outcome = Outcome{
		Level: p.box.level,
		Usage: Usage{
			Wall:   time.Since(p.began),
			CPU:    time.Duration(end.CPU),
			MaxRSS: end.MaxRSS,
			Output: p.out.bytes,
		},
	}
	p.judge(code, end, failed, bad)
	if p.outcome.Code != "" {
		p.outcome.Partial = result
		if stderr != "" && failed.Error == "" {
			p.outcome.Error += "; the end of stderr:\n" + stderr
		}
	} else if p.outcome.Result = result; result == nil {
		p.outcome.Result = printed(stdout)
	}
	if err := p.clear(); err != nil {
		p.out.say("the directory of the script could not be removed: " + err.Error())
	}
}

// judge finds the code of the outcome and its sentence.
func (p *Process) judge(code string, end, failed report, bad error) {
	o := &p.outcome
	if end.Ended && end.Exit >= 0 && failed.Error == "" {
		o.Exit = &end.Exit
	}
	switch {
	case code == CodeTimedOut:
		o.Code, o.Error = code, "the script ran longer than its timeout of "+p.script.Timeout.String()
	case code == CodeStopped:
		o.Code, o.Error = code, "the script was stopped"
	case failed.Error != "":
		o.Code, o.Error = failed.Code, failed.Error
	case end.Memory:
		o.Code = CodeMemory
		o.Error = fmt.Sprintf("the script took more than %d bytes of memory", p.box.config.Limits.Memory)
	case !end.Ended:
		o.Code, o.Error = CodeSandbox, "the init of the box has ended without a report: "+p.cmd.ProcessState.String()
	case end.Signal != 0:
		o.Code = CodeSignal
		o.Error = fmt.Sprintf("the script was ended by signal %d (%s)", end.Signal, syscall.Signal(end.Signal))
	case end.Exit != 0:
		o.Code, o.Error = CodeExit, fmt.Sprintf("the script ended with exit code %d", end.Exit)
	case bad != nil:
		o.Code, o.Error = CodeBadResult, bad.Error()
	}
}

// clear removes all that was made for the script.
func (p *Process) clear() error {
	var errs []error
	if p.commands != nil {
		p.commands.Close()
	}
	for _, r := range p.reading {
		r.Close()
	}
	if p.cgroup != nil {
		errs = append(errs, p.cgroup.remove())
	}
	if p.dir != nil {
		errs = append(errs, p.dir.remove())
	}
	return errors.Join(errs...)
}
