package channels

import "time"

// MessagesByKey are statements whose rows have to be found by their keys, with the lists of keys all empty.
var MessagesByKey = map[string][]any{
	channelMessageUpdate: {[]int32{}, []string{}, []string{}, []int32{}, []int64{}, []int64{}, []int64{},
		[]int32{}, []string{}, time.Time{}},
	channelMessageDelete: {[]int32{}, []string{}},
}
