package processor

// Spot says where in a line a batch is to stand: at a position from the head, or beside a batch that stands
// there. The zero value is the head.
type Spot struct {
	Position int64
	Before   int64 // id of a batch, 0 for none
	After    int64
}
