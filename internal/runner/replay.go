package runner

import (
	"context"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/postern-dev/postern/internal/sandbox"
)

// replaySlot is beyond those that most runners of a machine have, so that a replay by root has a user of its own.
const replaySlot = 999

// Replay executes a job once more, in a box as a runner does, and tells no server. out gets what the script writes. The
// end of ctx stops the script.
func Replay(ctx context.Context, box *sandbox.Box, j Job, out func(sandbox.Line)) sandbox.Outcome {
	s := j.script(replaySlot)
	s.Name = fmt.Sprintf("%s-replay-%d", j.Try, os.Getpid())
	p, err := box.Start(s, out)
	if err != nil {
		level, _ := box.Level()
		return unstarted(err, level)
	}
	defer context.AfterFunc(ctx, p.Stop)()
	return p.Wait()
}

// script is what the sandbox is given of a job.
func (j *Job) script(slot int) sandbox.Script {
	env := maps.Clone(j.Env)
	if env == nil {
		env = map[string]string{}
	}
	env["POSTERN_TOKEN"] = j.Token
	return sandbox.Script{
		Context: j.Context,
		Name:    fmt.Sprintf("%s-%d", j.Try, j.Fence),
		Slot:    slot,
		Type:    j.ScriptType,
		Text:    j.Script,
		Env:     env,
		Inputs:  j.Inputs,
		Timeout: time.Duration(j.Timeout) * time.Second,
		Network: j.Network,
	}
}
