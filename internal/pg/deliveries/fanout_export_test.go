package deliveries

import "time"

// DeliveriesByKey are statements whose rows have to be found by their keys, with the lists of keys all empty.
var DeliveriesByKey = map[string][]any{
	receiptsSQL: {[]int64{}, []int64{}, []time.Time{}, []int32{}, []string{}, []int32{}, []string{},
		[]time.Duration{}, []string{}, []string{},
		time.Time{}},
	fanoutDelete: {1, []int64{}},
}
