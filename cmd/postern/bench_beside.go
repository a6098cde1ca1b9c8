package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/bench"
)

// errSlowerBeside is how bench check ends if something is slower than the other build.
var errSlowerBeside = errors.New("slower than the other build: look at it again on a quiet machine, and find out why")

// checkBeside runs checks of one run each by another build and by this one, in turns, and writes the comparison.
func checkBeside(cmd *cobra.Command, c bench.Config, program string, asJSON bool) error {
	var ours, theirs [][]bench.Comparison
	self, err := thisProgram()
	if err != nil {
		return err
	}
	for range c.Runs {
		list, err := checkOnce(cmd, c, program)
		if err != nil {
			return err
		}
		theirs = append(theirs, list)
		if list, err = checkOnce(cmd, c, self); err != nil {
			return err
		}
		ours = append(ours, list)
	}
	slower, wrong, err := printCheck(cmd, bench.Beside(ours, theirs), "other build", asJSON)
	switch {
	case err != nil:
		return err
	case wrong:
		return errWrongRun
	case slower:
		return errSlowerBeside
	}
	return nil
}

// checkOnce lets a build run each scenario once. It is told to write a baseline, which is thrown away, so that it
// compares with none.
func checkOnce(cmd *cobra.Command, c bench.Config, program string) (list []bench.Comparison, err error) {
	dir, err := os.MkdirTemp("", "postern-bench-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	child := exec.CommandContext(cmd.Context(), program, "bench", "check", "--runs=1", "--output=json",
		"--update", "--baseline="+filepath.Join(dir, "baseline.json"),
		"--queues="+strconv.Itoa(c.Queues), "--depth="+strconv.Itoa(c.Depth),
		"--connections="+strconv.Itoa(c.Connections), "--length="+c.Length.String())
	var out bytes.Buffer
	child.Stdout, child.Stderr = &out, cmd.ErrOrStderr()
	if err := child.Run(); err != nil {
		return nil, fmt.Errorf("%s bench check: %w", program, err)
	}
	for lines := json.NewDecoder(&out); ; {
		var line bench.Comparison
		switch err := lines.Decode(&line); {
		case err == io.EOF && len(list) > 0:
			return list, nil
		case err != nil:
			return nil, fmt.Errorf("%s bench check gave no results: %w", program, err)
		}
		list = append(list, line)
	}
}
