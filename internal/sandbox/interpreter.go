package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Interpreter is how scripts of one type are executed.
type Interpreter struct {
	Argv []string // {file} stands for the script; a name without a slash is looked up in the PATH of the box
	Ext  string   // of the script's file, with its dot
	// Unmapped leaves the address space without a limit: programs such as Go and V8 reserve far more than they use.
	Unmapped bool
}

// DefaultInterpreters are those that need no configuration. Other types (sal, osis, v) are known where they are given.
func DefaultInterpreters() map[string]Interpreter {
	return map[string]Interpreter{"python": {Argv: []string{"python3", "-I", "{file}"}, Ext: ".py"}}
}

// boxPath is where a box looks for programs: below what it always shows of the host.
var boxPath = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// shown are the directories of the host that every box shows.
var shown = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// find returns the path of the interpreter of a script type, or a Failure of code no_interpreter that says why not.
func (c Config) find(scriptType string) (Interpreter, string, error) {
	i, ok := c.Interpreters[scriptType]
	if !ok || len(i.Argv) == 0 {
		return i, "", failure(CodeNoInterpreter, "no interpreter is configured for the script type %q", scriptType)
	}
	path, err := c.look(i.Argv[0])
	if err == nil && c.Least != Off {
		err = c.visible(path)
	}
	if err != nil {
		return i, "", failure(CodeNoInterpreter, "the interpreter of %s: %v", scriptType, err)
	}
	return i, path, nil
}

// look finds a program by its path, or by its name in the PATH of the box.
func (c Config) look(name string) (path string, err error) {
	if !strings.Contains(name, "/") {
		for _, dir := range boxPath {
			if path := filepath.Join(dir, name); executable(path) {
				return path, nil
			}
		}
		return "", fmt.Errorf("%s is in none of %s", name, strings.Join(boxPath, ":"))
	}
	switch {
	case !filepath.IsAbs(name) || filepath.Clean(name) != name:
		return "", fmt.Errorf("%s: want an absolute path, or a name", name)
	case !executable(name):
		return "", fmt.Errorf("%s is not there, or no program", name)
	}
	return name, nil
}

// visible says whether a box shows a program, and the file that it is a symlink to.
func (c Config) visible(path string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	for _, p := range []string{path, real} {
		if !slices.ContainsFunc(slices.Concat(shown, c.ReadOnly), func(dir string) bool {
			return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
		}) {
			return fmt.Errorf("%s cannot be seen in the box: show its directory read-only", p)
		}
	}
	return nil
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// Types tells which of the script types can be executed here, and why not the others.
func (c Config) Types(asked []string) (there []string, missing map[string]string) {
	c = c.withDefaults()
	missing = map[string]string{}
	for _, t := range asked {
		if _, _, err := c.find(t); err != nil {
			missing[t] = err.Error()
		} else {
			there = append(there, t)
		}
	}
	return there, missing
}
