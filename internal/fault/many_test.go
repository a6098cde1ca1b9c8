package fault

import "testing"

func TestManyIsSaidAsPeopleSayIt(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"0 queues":     Many(0, "queue"),
		"1 queue":      Many(1, "queue"),
		"2 queues":     Many(int64(2), "queue"),
		"1 batch":      Many(1, "batch"),
		"3 batches":    Many(3, "batch"),
		"2 processes":  Many(2, "process"),
		"2 deliveries": Many(2, "delivery"),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
