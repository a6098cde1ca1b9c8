package db

import (
	"fmt"
	"maps"
	"slices"

	"github.com/postern-dev/postern/internal/fault"
)

// Tables is what a package of the store says of its tables, so that errors about them are told, and mended where they
// can be.
type Tables struct {
	// Constraints says what the violation of each constraint means, by its name, which is a sentence.
	Constraints map[string]fault.Kind
	// Again names the keys whose violation means that somebody else did the same a moment before: the SQL transaction
	// runs again, and sees what the other one has committed.
	Again []string
	// Days names the key of each table that is divided by days. PostgreSQL names a violated key by its partition,
	// as outcome_20060102_pkey.
	Days map[string]string
	// Newest selects, by machine, the states of the newest things of a context $1, at most $2, and where these lie in
	// other things, such as batches in processors, in at most $3 of them. Each reads along an index that has the order,
	// so that its cost does not grow with the table.
	Newest map[string]string
}

// kinds, again and keys are what has been registered: by constraint, and keys by table. They change in init functions
// only.
var (
	kinds = map[string]fault.Kind{}
	again = map[string]bool{}
	keys  = map[string]string{}

	newest = map[string]string{}
)

// Register adds the tables of a package, from its init. A constraint that two packages register panics.
func Register(t Tables) {
	for name, kind := range t.Constraints {
		if _, known := kinds[name]; known {
			panic(fmt.Sprintf("the constraint %s is registered twice", name))
		}
		kinds[name] = kind
	}
	for _, name := range t.Again {
		again[name] = true
	}
	maps.Copy(keys, t.Days)
	maps.Copy(newest, t.Newest)
}

// Newest is how the states of the newest things of a machine are selected; "": no package has registered it.
func Newest(machine string) string { return newest[machine] }

// Constraints returns what the constraints of all tables that have been registered mean, by name.
func Constraints() map[string]fault.Kind { return maps.Clone(kinds) }

// daily returns the tables that are divided by days, in order.
func daily() []string { return slices.Sorted(maps.Keys(keys)) }
