package bench

import (
	"math/bits"
	"time"
)

// histogram counts durations in buckets that are each about 1 % wide, as HdrHistogram does: 64 of them for each power
// of two of nanoseconds. So it keeps p99.9 of any number of durations in a few kilobytes, and two histograms can be
// added.
type histogram struct {
	counts [64 * 58]int64
	n      int64
	max    time.Duration
}

const subBuckets = 64

func bucket(d time.Duration) int {
	v := uint64(max(d, 0))
	if v < subBuckets {
		return int(v)
	}
	exp := bits.Len64(v) - 7 // v>>exp lies in [64, 128)
	return exp*subBuckets + int(v>>exp)
}

// upper is the largest duration that falls into a bucket.
func upper(i int) time.Duration {
	if i < 2*subBuckets {
		return time.Duration(i)
	}
	exp := i/subBuckets - 1
	return time.Duration((uint64(i-exp*subBuckets)+1)<<exp - 1)
}

// add counts one duration.
func (h *histogram) add(d time.Duration) {
	h.counts[min(bucket(d), len(h.counts)-1)]++
	h.n++
	h.max = max(h.max, d)
}

// merge counts what another histogram has counted.
func (h *histogram) merge(o *histogram) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.n += o.n
	h.max = max(h.max, o.max)
}

// quantile is the duration that the share q of what was counted does not exceed, at most 1.6 % too long.
func (h *histogram) quantile(q float64) time.Duration {
	rank := int64(q*float64(h.n) + 0.999999)
	for i, seen := 0, int64(0); i < len(h.counts); i++ {
		if seen += h.counts[i]; seen >= max(rank, 1) {
			return min(upper(i), h.max)
		}
	}
	return h.max
}
