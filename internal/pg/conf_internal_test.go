package pg

import "testing"

// A reading that began before a change and ends behind the reading that shows it changes nothing: else what has
// just been paused would be taken for running until the next second.
func TestAReadingThatBeganEarlierDoesNotReplaceALaterOne(t *testing.T) {
	c := newConf(nil)
	first, second := &confView{begun: c.readings.Add(1)}, &confView{begun: c.readings.Add(1)}
	c.put(second)
	if c.put(first); c.view.Load() != second {
		t.Error("the older reading is the present one")
	}
	third := &confView{begun: c.readings.Add(1)}
	if c.put(third); c.view.Load() != third {
		t.Error("the newest reading is not the present one")
	}
}
