package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/postern-dev/postern/internal/fault"
)

// sizeMost is how large a file may be.
const sizeMost = 16 << 20

// file is one that is being read.
type file struct {
	name      string // as people called it
	folder    string // where its references begin
	documents []*Document
	faults    []string
}

// Read reads the documents of files, of the files of directories (*.yaml, *.yml and *.json, by name), and of in for
// "-". Fault bad_file: it says everything that is wrong, each with file, line and column.
func Read(in io.Reader, names ...string) ([]*Document, error) {
	var all []*Document
	var faults []string
	for _, name := range names {
		paths, err := filesOf(name)
		if err != nil {
			faults = append(faults, err.Error())
		}
		for _, path := range paths {
			f := readFile(path, in)
			all, faults = append(all, f.documents...), append(faults, f.faults...)
		}
	}
	if len(faults) == 0 && len(all) == 0 {
		faults = append(faults, strings.Join(names, ", ")+": there is no document in it; "+
			"to remove all that a label names, leave one that may stay, such as that of its context")
	}
	if len(faults) > 0 {
		return nil, fault.New(fault.Invalid, "bad_file", "%s", strings.Join(faults, "\n"))
	}
	return all, nil
}

// filesOf is the file of a name, or those of a directory. A mounted ConfigMap has links and hidden directories in it.
func filesOf(name string) ([]string, error) {
	if name == "-" {
		return []string{name}, nil
	}
	info, err := os.Stat(name)
	if err != nil || !info.IsDir() {
		return []string{name}, nil // reading it says what is wrong
	}
	var paths []string
	entries, err := os.ReadDir(name)
	for _, e := range entries { // by name
		known := slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name()))
		if !known || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		paths = append(paths, filepath.Join(name, e.Name()))
	}
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("%s: there is no file *.yaml, *.yml or *.json in this directory", name)
	}
	return paths, err
}

func readFile(path string, in io.Reader) *file {
	f := &file{name: path, folder: filepath.Dir(path)}
	if path == "-" {
		f.name, f.folder = "stdin", "."
	} else {
		opened, err := os.Open(path)
		if err != nil {
			f.faults = append(f.faults, err.Error())
			return f
		}
		defer opened.Close()
		in = opened
	}
	raw, err := io.ReadAll(io.LimitReader(in, sizeMost+1))
	raw = bytes.TrimPrefix(raw, []byte("\ufeff"))
	switch {
	case err != nil:
		f.faults = append(f.faults, fmt.Sprintf("%s: %v", f.name, err))
		return f
	case len(raw) > sizeMost:
		f.faults = append(f.faults, fmt.Sprintf("%s: it has more than %d bytes", f.name, sizeMost))
		return f
	case !utf8.Valid(raw):
		f.faults = append(f.faults, f.name+": it is no UTF-8")
		return f
	}
	read := f.readYAML
	if filepath.Ext(path) == ".json" || isJSON(raw) {
		read = f.readJSON
	}
	for _, v := range read(raw) {
		if v.kind != list {
			f.document(v)
			continue
		}
		for _, item := range v.items {
			f.document(item)
		}
	}
	return f
}

// isJSON says whether a file has JSON values alone. YAML reads most of JSON, but not all of it.
func isJSON(raw []byte) bool {
	d := json.NewDecoder(bytes.NewReader(raw))
	for {
		var one json.RawMessage
		switch err := d.Decode(&one); {
		case err == io.EOF: //nolint:errorlint // as Decode returns it
			return true
		case err != nil:
			return false
		}
	}
}

// wrong notes what is wrong in a file, and where.
func (f *file) wrong(at place, format string, args ...any) {
	f.faults = append(f.faults, fmt.Sprintf("%s:%s: %s", f.name, at, fmt.Sprintf(format, args...)))
}

// resolve puts what references name in their places. top: v is the settings themselves, whose secret wants one.
func (f *file) resolve(v *value, top bool) {
	for _, item := range v.items {
		f.reference(item)
	}
	for _, m := range v.members {
		if top && m.key == "secret" && m.of.kind == text && m.of.text != "" {
			f.wrong(m.of.place, "a secret stands in no file: write secret: {from_file: PATH} or {from_env: NAME}")
			continue
		}
		f.reference(m.of)
	}
}

// reference puts in the place of v what it refers to, if it refers to anything.
func (f *file) reference(v *value) {
	if len(v.members) != 1 || v.members[0].key != "from_file" && v.members[0].key != "from_env" {
		f.resolve(v, false)
		return
	}
	m := v.members[0]
	if m.of.kind != text || m.of.text == "" {
		f.wrong(v.place, "%s: want a text", m.key)
		return
	}
	found, err := f.look(m.key, m.of.text)
	switch {
	case err != nil:
		f.wrong(v.place, "%s: %v", m.key, err)
	case !utf8.ValidString(found) || strings.ContainsRune(found, 0):
		f.wrong(v.place, "%s: what it names is no UTF-8 text", m.key)
	}
	*v = value{place: v.place, kind: text, text: found}
}

// look reads what a reference names, without a line break at its end. Errors do not show it.
func (f *file) look(how, name string) (string, error) {
	if how == "from_env" {
		found, ok := os.LookupEnv(name)
		if !ok {
			return "", fmt.Errorf("the variable %s is not set", clip(name))
		}
		return found, nil
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(f.folder, name)
	}
	raw, err := os.ReadFile(name)
	if len(raw) > 1<<20 {
		return "", fmt.Errorf("%s has more than 1 MiB", name)
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(raw), "\n"), "\r"), err
}
