package sandbox

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// The files of a script in its directory.
const (
	resultFile = "result.json"
	inputsFile = "inputs.json"
)

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

const mostEnv = 128<<10 + 8<<10 // what jobs may have, and room for POSTERN_*

// environment is all that a script gets: nothing is inherited from the runner. dir is its directory as the script
// sees it.
func environment(s Script, dir, tmp string) ([]string, error) {
	env := map[string]string{
		"PATH":           strings.Join(boxPath, ":"),
		"HOME":           dir,
		"LANG":           "C.UTF-8",
		"TMPDIR":         tmp,
		"POSTERN_RESULT": dir + "/" + resultFile,
		"POSTERN_INPUTS": dir + "/" + inputsFile,
	}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		value := s.Env[name]
		size += len(name) + len(value) + 2
		_, ours := env[name]
		switch {
		case !envName.MatchString(name):
			return nil, failure(CodeBadEnvironment, "the variable %.64q: want a name of letters, digits and _", name)
		case ours && (name == "PATH" || strings.HasPrefix(name, "POSTERN_")), strings.HasPrefix(name, "LD_"):
			return nil, failure(CodeBadEnvironment, "the variable %s is set by the runner or the system alone", name)
		case strings.IndexByte(value, 0) >= 0:
			return nil, failure(CodeBadEnvironment, "the variable %s has a byte 0 in its value", name)
		case size > mostEnv:
			return nil, failure(CodeBadEnvironment, "the environment has more than %d bytes", mostEnv)
		}
		env[name] = value
	}
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list, nil
}
