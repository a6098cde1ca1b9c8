package outbox

import (
	"encoding/hex"
	"fmt"
	"time"
)

// ID names a transaction for good: a UUIDv8 that packs where its row lies, so that a look-up is one
// primary-key read. Clients treat it as opaque. The epoch is the database's: ids of a restored
// database never name another transaction (reliability: restore and clone safety).
type ID struct {
	Queue int64 // 44 bits
	Seq   int64 // 40 bits
	Day   Day   // 16 bits
	Epoch int   // 12 bits
}

// Day is a UTC day, counted from 1970-01-01.
type Day int32

// DayOf returns the UTC day of t.
func DayOf(t time.Time) Day { return Day(t.Unix() / 86400) }

// Time returns the first moment of d.
func (d Day) Time() time.Time { return time.Unix(int64(d)*86400, 0).UTC() }

// bytes lays the parts out as queue 44, epoch's upper 4 | version 8, epoch's lower 8, seq's upper 4
// | variant 2, day 16, 2 zero bits, seq's lower 36.
func (id ID) bytes() (b [16]byte) {
	q := uint64(id.Queue) & (1<<44 - 1)
	e := uint64(id.Epoch) & (1<<12 - 1)
	s := uint64(id.Seq) & (1<<40 - 1)
	d := uint64(uint16(id.Day))
	hi := q<<20 | (e>>8)<<16 | 8<<12 | (e&0xff)<<4 | s>>36
	lo := uint64(2)<<62 | d<<46 | s&(1<<36-1)
	for i := range 8 {
		b[i] = byte(hi >> (56 - 8*i))
		b[8+i] = byte(lo >> (56 - 8*i))
	}
	return b
}

// String returns the id in the usual form of a UUID.
func (id ID) String() string {
	b := id.bytes()
	var s [36]byte
	hex.Encode(s[0:8], b[0:4])
	hex.Encode(s[9:13], b[4:6])
	hex.Encode(s[14:18], b[6:8])
	hex.Encode(s[19:23], b[8:10])
	hex.Encode(s[24:36], b[10:16])
	s[8], s[13], s[18], s[23] = '-', '-', '-', '-'
	return string(s[:])
}

// MarshalText writes the id as people see it, in logs and in JSON: its parts mean nothing to them.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// IsZero says whether the id names nothing.
func (id ID) IsZero() bool { return id == ID{} }

// Token is what a worker recognises one attempt by, also when it is sent again (S0.4).
func (id ID) Token(attempt int) string { return fmt.Sprintf("%s.%d", id, attempt) }

// ParseID reads an id back. Anything else than an id that Postern handed out is an error, which a
// caller answers with "not found".
func ParseID(s string) (ID, error) {
	bad := fmt.Errorf("%.64q is not the id of a transaction", s)
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return ID{}, bad
	}
	raw, err := hex.DecodeString(s[0:8] + s[9:13] + s[14:18] + s[19:23] + s[24:36])
	if err != nil {
		return ID{}, bad
	}
	var hi, lo uint64
	for i := range 8 {
		hi = hi<<8 | uint64(raw[i])
		lo = lo<<8 | uint64(raw[8+i])
	}
	id := ID{
		Queue: int64(hi >> 20),
		Epoch: int(hi>>16&0xf<<8 | hi>>4&0xff),
		Seq:   int64(hi&0xf<<36 | lo&(1<<36-1)),
		Day:   Day(lo >> 46 & 0xffff),
	}
	if id.bytes() != [16]byte(raw) { // version, variant or a spare bit
		return ID{}, bad
	}
	return id, nil
}
