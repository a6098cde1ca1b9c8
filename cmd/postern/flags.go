package main

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/internal/app"
)

// addSettings gives a command the flags of some groups of settings. Their defaults stand in Config, or
// in defaults where the command wants them otherwise.
func addSettings(cmd *cobra.Command, defaults map[string]string, groups ...string) {
	for _, f := range app.Fields() {
		if !slices.Contains(groups, f.Group) {
			continue
		}
		value := f.Default
		if v, ok := defaults[f.Env]; ok {
			value = v
		}
		help := fmt.Sprintf("%s (%s)", f.Help, f.Env)
		if value != "" {
			help += " [" + value + "]"
		}
		flag := cmd.Flags().VarPF(new(text), f.Name, "", help)
		if f.Bool {
			flag.NoOptDefVal = "true"
		}
	}
	cmd.Flags().SortFlags = false
}

// text is a flag whose meaning app.Load knows.
type text string

func (t *text) String() string     { return string(*t) }
func (t *text) Set(s string) error { *t = text(s); return nil }
func (t *text) Type() string       { return "value" }

// settings loads the configuration from the command's flags, the environment and the defaults.
func settings(cmd *cobra.Command, defaults ...map[string]string) (app.Config, []app.Setting, error) {
	l := app.Layers{Flags: map[string]string{}, Environ: app.Environ(os.Environ()),
		Defaults: map[string]string{}, Command: cmd.Name()}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if t, ok := f.Value.(*text); ok {
			l.Flags[f.Name] = string(*t)
		}
	})
	for _, d := range defaults {
		maps.Copy(l.Defaults, d)
	}
	cfg, list, err := app.Load(l)
	if err == nil {
		warn(cmd, cfg)
	}
	return cfg, list, err
}

// warn names, once for a command, the parameters of DATABASE_URL that are ignored.
func warn(cmd *cobra.Command, cfg app.Config) {
	const warned = "warned"
	if cmd.Annotations[warned] != "" {
		return
	}
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[warned] = "true"
	for _, w := range cfg.Warnings() {
		fmt.Fprintf(cmd.ErrOrStderr(), "postern: %s\n", w)
	}
}

var badArgument = regexp.MustCompile(`^invalid argument "(.*)" for "([^"]*)" flag: (.*)$`)

// flagError says of a value that a flag cannot take what would be right, in place of the words of the parser.
func flagError(err error) error {
	m := badArgument.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	want := m[3]
	switch {
	case strings.Contains(want, "duration"):
		want = "want a duration with its unit, such as 500ms, 90s or 2h"
	case strings.Contains(want, "strconv.Parse"), strings.Contains(want, "strconv.Atoi"):
		want = "want a whole number, such as 10"
		if strings.Contains(m[3], "ParseBool") {
			want = "want true or false"
		}
	}
	names := strings.Split(m[2], ", ")
	return fmt.Errorf("%s is %q: %s", names[len(names)-1], clip(m[1], 64), want)
}
