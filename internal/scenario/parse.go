package scenario

import (
	"fmt"
	"regexp"
	"strings"
)

// line is one line of a story: a comment or blank line (text only), or a command.
type line struct {
	number int
	text   string
	cmd    *command
}

// paragraph is some lines and, where they say something, what that is.
type paragraph struct {
	lines []line
	said  []string // nil: nothing is expected, and no "----" stands there
}

// command is one command: its name, its words, and its options, which are taken out as they are used.
type command struct {
	name    string
	words   []string
	options map[string]string
}

const rule = "----"

// parse reads a story. Blank lines end a paragraph.
func parse(text string) ([]*paragraph, error) {
	var list []*paragraph
	p := &paragraph{}
	for i, s := range strings.Split(strings.TrimRight(text, "\n")+"\n", "\n") {
		s = strings.TrimRight(s, " \t")
		switch {
		case s == "":
			if len(p.lines) > 0 {
				list = append(list, p)
			}
			p = &paragraph{}
		case p.said != nil:
			p.said = append(p.said, s)
		case s == rule:
			p.said = []string{}
		case strings.HasPrefix(s, "#"):
			p.lines = append(p.lines, line{number: i + 1, text: s})
		default:
			c, err := parseCommand(s)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			p.lines = append(p.lines, line{number: i + 1, text: s, cmd: c})
		}
	}
	return list, nil
}

// render is the inverse of parse.
func render(list []*paragraph) string {
	var b strings.Builder
	for i, p := range list {
		if i > 0 {
			b.WriteString("\n")
		}
		for _, l := range p.lines {
			b.WriteString(l.text + "\n")
		}
		if len(p.said) > 0 {
			b.WriteString(rule + "\n" + strings.Join(p.said, "\n") + "\n")
		}
	}
	return b.String()
}

var option = regexp.MustCompile(`^[a-z_]+=`)

// parseCommand splits at blanks; '...' keeps blanks together.
func parseCommand(s string) (*command, error) {
	c := &command{options: map[string]string{}}
	for _, w := range split(s) {
		if strings.Count(w, "'")%2 != 0 {
			return nil, fmt.Errorf("%s: a quote is left open", s)
		}
		key, value, _ := strings.Cut(w, "=")
		value = strings.ReplaceAll(value, "'", "")
		switch {
		case c.name == "":
			c.name = w
		case option.MatchString(w):
			if _, twice := c.options[key]; twice {
				return nil, fmt.Errorf("%s: %s stands there twice", s, key)
			}
			c.options[key] = value
		default:
			c.words = append(c.words, strings.ReplaceAll(w, "'", ""))
		}
	}
	return c, nil
}

func split(s string) []string {
	quoted := false
	return strings.FieldsFunc(s, func(r rune) bool {
		if r == '\'' {
			quoted = !quoted
		}
		return !quoted && (r == ' ' || r == '\t')
	})
}

// option takes an option out, or returns the value that counts without it.
func (c *command) option(key, otherwise string) string {
	v, ok := c.options[key]
	delete(c.options, key)
	if !ok {
		return otherwise
	}
	return v
}

// word takes the first word out; "" if there is none.
func (c *command) word() string {
	if len(c.words) == 0 {
		return ""
	}
	w := c.words[0]
	c.words = c.words[1:]
	return w
}

// rest takes all other words out.
func (c *command) rest() []string {
	w := c.words
	c.words = nil
	return w
}

// left refuses options and words that the command has not used.
func (c *command) left() error {
	for key := range c.options {
		return fmt.Errorf("%s knows no %s=", c.name, key)
	}
	if len(c.words) > 0 {
		return fmt.Errorf("%s does not know what to do with %q", c.name, c.words[0])
	}
	return nil
}
