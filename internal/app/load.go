package app

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/postern-dev/postern/internal/fault"
)

// Field is one setting as flags and documents show it.
type Field struct {
	Name    string // of the flag: lease-ttl
	Env     string // of the variable: POSTERN_LEASE_TTL
	Default string
	Group   string
	Help    string
	Secret  bool // read from the file that <Env>_FILE names, too; never printed
	Bool    bool
}

// Fields lists every setting in the order of Config.
func Fields() []Field {
	var all []Field
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
		name := f.Tag.Get("env")
		all = append(all, Field{Name: flagName(name), Env: name,
			Default: f.Tag.Get("envDefault"), Group: f.Tag.Get("group"),
			Help: f.Tag.Get("help"), Secret: f.Tag.Get("secret") != "", Bool: f.Type.Kind() == reflect.Bool})
	}
	return all
}

// flagName derives lease-ttl from POSTERN_LEASE_TTL.
func flagName(variable string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(variable, "POSTERN_"), "_", "-"))
}

// variable finds the variable of a flag.
func variable(flag string) string {
	for _, f := range Fields() {
		if f.Name == flag {
			return f.Env
		}
	}
	return ""
}

// Setting is one effective setting and where it comes from.
type Setting struct {
	Name   string `json:"name"`
	Env    string `json:"variable"`
	Value  string `json:"value"` // passwords masked
	Origin string `json:"origin"`
}

// Layers are the sources of settings: a flag beats the environment, which beats a default. Empty values
// in the environment count as not set.
type Layers struct {
	Flags    map[string]string // by name of the flag
	Environ  map[string]string // by name of the variable
	Defaults map[string]string // by name of the variable: what a command wants otherwise than Config says
	Command  string            // whose defaults these are
}

// Load makes a Config of its layers and tells where each setting came from. Faults are Invalid with
// code bad_setting: a value that cannot be read or cannot be, a file that cannot be read, or a setting
// given both directly and by file.
func Load(l Layers) (Config, []Setting, error) {
	values := map[string]string{}
	var settings []Setting
	for _, f := range Fields() {
		v, origin, err := l.find(f)
		if err != nil {
			return Config{}, nil, err
		}
		if v != "" {
			values[f.Env] = v
		}
		if f.Secret {
			v = mask(v)
		}
		settings = append(settings, Setting{Name: f.Name, Env: f.Env, Value: v, Origin: origin})
	}
	c, err := env.ParseAsWithOptions[Config](env.Options{Environment: values})
	if err != nil {
		return Config{}, nil, unreadable(err, values)
	}
	return c, settings, c.Validate()
}

// find returns the value of a field and its origin.
func (l Layers) find(f Field) (value, origin string, err error) {
	if v, ok := l.Flags[f.Name]; ok {
		return v, "flag --" + f.Name, nil
	}
	file := ""
	if f.Secret {
		file = l.Environ[f.Env+"_FILE"]
	}
	switch v := l.Environ[f.Env]; {
	case v != "" && file != "":
		return "", "", fault.New(fault.Invalid, "bad_setting",
			"%s and %s_FILE are both set: unset one of them", f.Env, f.Env)
	case v != "":
		return v, f.Env, nil
	case file != "":
		b, err := os.ReadFile(file)
		if err != nil {
			return "", "", fault.New(fault.Invalid, "bad_setting", "%s_FILE: %v", f.Env, err)
		}
		return strings.TrimSpace(string(b)), f.Env + "_FILE", nil
	}
	if v, ok := l.Defaults[f.Env]; ok {
		return v, "default of " + l.Command, nil
	}
	return f.Default, "default", nil
}

// unreadable names flag, variable and value in a fault of the library, whose words speak of Go, and says what would be
// right.
func unreadable(err error, values map[string]string) error {
	var all env.AggregateError
	var one env.ParseError
	if errors.As(err, &all) && len(all.Errors) > 0 && errors.As(all.Errors[0], &one) {
		if f, ok := reflect.TypeFor[Config]().FieldByName(one.Name); ok {
			name := f.Tag.Get("env")
			if want := wanted(f.Type); want != "" {
				return invalid(flagName(name), values[name], want)
			}
			said := one.Err.Error()
			if !strings.HasPrefix(said, "is ") {
				said = "cannot be used: " + said
			}
			return fault.New(fault.Invalid, "bad_setting", "--%s (%s) %s", flagName(name), name, said)
		}
	}
	return fault.New(fault.Invalid, "bad_setting", "%v", err)
}

// wanted says what a setting of a type of the standard library wants, "" for our types, whose errors say it.
func wanted(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return "want a duration with its unit, such as 500ms, 10s or 5m"
	case reflect.TypeFor[[]netip.Prefix]():
		return "want ranges of addresses with commas between, such as 10.0.0.0/8,fd00::/8; one address is 10.1.2.3/32"
	case reflect.TypeFor[slog.Level]():
		return "want debug, info, warn or error"
	}
	if t.PkgPath() != "" {
		return ""
	}
	switch t.Kind() {
	case reflect.Bool:
		return "want true or false"
	case reflect.Int:
		return "want a whole number"
	}
	return ""
}

var password = regexp.MustCompile(`(?i)(password\s*=\s*)('[^']*'|[^\s&]+)`)

// mask hides the password of a database URL, or all of another secret.
func mask(v string) string {
	if v == "" {
		return ""
	}
	if u, err := url.Parse(v); err == nil && u.Host != "" {
		return password.ReplaceAllString(u.Redacted(), "${1}xxxxx")
	}
	if password.MatchString(v) || strings.Contains(v, "host=") {
		return password.ReplaceAllString(v, "${1}xxxxx")
	}
	return "xxxxx"
}

// Environ turns the form of os.Environ into a map.
func Environ(list []string) map[string]string {
	m := map[string]string{}
	for _, kv := range list {
		if k, v, ok := strings.Cut(kv, "="); ok {
			m[k] = v
		}
	}
	return m
}

// String shows a field as help does.
func (f Field) String() string { return fmt.Sprintf("--%s (%s)", f.Name, f.Env) }
