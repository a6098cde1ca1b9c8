package session

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/twin"
)

// fixed is a setting on which our SQL rests. DATABASE_URL may only ask for what is right.
type fixed struct {
	name, value string
	others      []string // further values that are right
}

// rests are the settings on which our SQL rests. Each session asks for them when it begins, and what a session asks
// for at its beginning counts more than what the role and the database give to it. default_transaction_read_only is
// none of them: it is how an operator, or a service whose disk is full, ends writes, and readiness tells of it.
var rests = []fixed{
	{name: "client_encoding", value: "UTF8", others: []string{"utf-8", "unicode", "auto"}},
	{name: "datestyle", value: "ISO, MDY", others: []string{"iso"}}, // times are read as text here and there
	{name: "intervalstyle", value: "postgres"},
	{name: "timezone", value: "UTC"}, // a day of a partition is a day in UTC
	{name: "bytea_output", value: "hex"},
	{name: "extra_float_digits", value: "1", others: []string{"2", "3"}},
	{name: "standard_conforming_strings", value: "on"},
	{name: "array_nulls", value: "on"},
	{name: "transform_null_equals", value: "off"},
	{name: "search_path", value: "pg_catalog, pg_temp"}, // names without a schema are those of PostgreSQL
	{name: "row_security", value: "on"},
	{name: "client_min_messages", value: "notice"}, // a commit that has not waited for its standby is told by a warning
	{name: "default_transaction_isolation", value: "read committed"},
	{name: "default_transaction_deferrable", value: "off"},
	{name: "synchronous_commit", value: durable(), others: []string{"remote_apply", "remote_write", "local"}},
}

// durable has a commit wait until it is on disk.
func durable() string {
	if twin.Planted("ack_before_commit") {
		return "off"
	}
	return "on"
}

// limits are those of a command that does one thing and ends: the server ends nothing of it.
var limits = []string{
	"statement_timeout",
	"lock_timeout",
	"idle_in_transaction_session_timeout",
	"idle_session_timeout",
}

// ignored are parameters that change nothing here, by the reason.
var ignored = map[string]string{
	"keepalives":                 watched,
	"keepalives_idle":            watched,
	"keepalives_interval":        watched,
	"keepalives_count":           watched,
	"load_balance_hosts":         "all hosts are asked, and the one primary is used",
	"gssdelegation":              withoutGSS,
	"gsslib":                     withoutGSS,
	"krbsrvname":                 withoutGSS,
	"krbspn":                     withoutGSS,
	"sslcompression":             "TLS is never compressed",
	"sslkeylogfile":              "keys of TLS are not written to files",
	"description_cache_capacity": "no statement is described without being prepared",
}

const (
	watched    = "Postern asks the server after connections on which nothing comes, and closes those that are dead"
	withoutGSS = "Postern does not know GSSAPI"
)

// refused are parameters without which the URL would mean something else, by what to do instead.
var refused = map[string]string{
	"hostaddr":                 "give the address as host, or the name where the certificate is verified",
	"requirepeer":              "the owner of a socket is not looked at: use sslmode=verify-full over TCP",
	"sslcrl":                   "lists of revoked certificates are not read: use another sslrootcert",
	"sslcrldir":                "lists of revoked certificates are not read: use another sslrootcert",
	"gssencmode":               "Postern does not know GSSAPI: say gssencmode=disable, and sslmode=verify-full",
	"requiressl":               "say sslmode=require",
	"replication":              "a session of replication answers no queries: leave it out",
	"scram_client_key":         "give the password",
	"scram_server_key":         "give the password",
	"oauth_issuer":             "give a password or a certificate",
	"oauth_client_id":          "give a password or a certificate",
	"oauth_client_secret":      "give a password or a certificate",
	"oauth_scope":              "give a password or a certificate",
	"role":                     "name the user itself in the URL: rights are those of the user who connects",
	"session_authorization":    "name the user itself in the URL: rights are those of the user who connects",
	"session_replication_role": "triggers must fire: leave it out",
	"transaction_isolation":    "leave it out: statements count on read committed",
	"transaction_read_only":    "leave it out",
	"transaction_deferrable":   "leave it out",
}

// idle are values of parameters that are refused which ask for nothing.
var idle = map[string][]string{
	"gssencmode":  {"disable", "prefer"},
	"requiressl":  {"", "0"},
	"replication": {"", "0", "off", "false", "no"},
}

// apply goes through what the URL, the environment and the service file ask of the server, and leaves in given what is
// sent. ambient are names that the environment alone has given.
func apply(given map[string]string, ambient func(name string) bool) (warnings []string, err error) {
	if err := spread(given); err != nil {
		return nil, err
	}
	if name, ok := given["fallback_application_name"]; ok {
		delete(given, "fallback_application_name")
		if given["application_name"] == "" {
			given["application_name"] = name
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		value := given[name]
		if why, ok := ignored[name]; ok {
			delete(given, name)
			warnings = append(warnings, fmt.Sprintf("DATABASE_URL: %s is ignored: %s", name, why))
			continue
		}
		if idle[name] != nil && slices.Contains(idle[name], strings.ToLower(value)) {
			delete(given, name)
			continue
		}
		if err := check(name); err != nil {
			return nil, err
		}
	}
	for _, f := range rests {
		value, ok := given[f.name]
		switch {
		case !ok, f.is(value) && f.name != "synchronous_commit", ambient(f.name):
			given[f.name] = f.value
		case !f.is(value):
			return nil, bad("%s=%s cannot be had: Postern's SQL rests on %s: leave it out", f.name, value, f.value)
		}
	}
	return warnings, nil
}

// is says whether a value of the setting is right.
func (f fixed) is(value string) bool {
	same := func(s string) bool { return strings.EqualFold(strings.TrimSpace(value), s) }
	return same(f.value) || slices.ContainsFunc(f.others, same)
}

// check refuses a parameter by its name.
func check(name string) error {
	remedy, no := refused[name]
	switch {
	case no:
		return bad("%s is not for Postern: %s", name, remedy)
	case strings.HasPrefix(name, "pool_"):
		return bad("%s is not known: want pool_max_conns, pool_min_conns, pool_min_idle_conns, "+
			"pool_max_conn_idle_time, pool_max_conn_lifetime, pool_max_conn_lifetime_jitter, "+
			"pool_health_check_period or pool_ping_timeout", name)
	case strings.HasPrefix(name, "ssl"), strings.HasPrefix(name, "krb"), strings.HasPrefix(name, "oauth"):
		return bad("%s is not known", name)
	}
	return nil
}

// spread makes parameters of their own of what `options` says, as PGOPTIONS does.
func spread(given map[string]string) error {
	text, ok := given["options"]
	if !ok {
		return nil
	}
	delete(given, "options")
	words := split(text)
	for i := 0; i < len(words); i++ {
		word := words[i]
		switch {
		case word == "-c" && i+1 < len(words):
			i++
			word = words[i]
		case strings.HasPrefix(word, "--"):
			word = word[2:]
		case strings.HasPrefix(word, "-c"):
			word = word[2:]
		default:
			return bad("options: %q is not for Postern: want only -c name=value", word)
		}
		name, value, ok := strings.Cut(word, "=")
		if !ok || name == "" {
			return bad("options: %q says no value: want -c name=value", word)
		}
		name = strings.ToLower(strings.ReplaceAll(name, "-", "_"))
		if _, twice := given[name]; !twice {
			given[name] = value
		}
	}
	return nil
}

// split is text as words; a backslash takes the character behind it as it is.
func split(text string) (words []string) {
	var word strings.Builder
	inside, taken := false, false
	for _, r := range text {
		switch {
		case taken:
			word.WriteRune(r)
			taken = false
		case r == '\\':
			inside, taken = true, true
		case r == ' ' || r == '\t' || r == '\n':
			if inside {
				words = append(words, word.String())
				word.Reset()
			}
			inside = false
		default:
			inside = true
			word.WriteRune(r)
		}
	}
	if inside {
		words = append(words, word.String())
	}
	return words
}

// bad is a fault of DATABASE_URL.
func bad(format string, args ...any) error {
	return fault.New(fault.Invalid, "bad_setting", "DATABASE_URL: "+format, args...)
}
