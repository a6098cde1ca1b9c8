package outbox

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"time"
)

// ID names a transaction for good: a UUIDv8 that packs where its row lies, so that a look-up is one
// primary-key read. Clients treat it as opaque. The salt is not stored: who looks a transaction up compares it with
// that of the row, so that the id of a transaction that was lost with its store's last minutes is not taken for
// the one that has its place since (docs/numbers.md).
type ID struct {
	Queue int64 // 44 bits
	Seq   int64 // 40 bits
	Day   Day   // 16 bits
	Salt  int   // 22 bits; of what is told of a processor, the upper bits of Seq
}

const (
	seqBits  = 40
	saltMask = 1<<22 - 1
)

// SaltOf returns the salt of a transaction's id: the microseconds of its arrival and, of what was moved to another
// queue, the place that it had before. For those of one commit arrive in one microsecond, and may be moved
// in one order before a store goes back and in another after it. postern.salt does the same.
func SaltOf(arrival time.Time, movedFrom string) int {
	salt := arrival.UnixMicro()
	if from, err := ParseID(movedFrom); err == nil {
		salt ^= from.Queue ^ from.Seq
	}
	return int(salt & saltMask)
}

// Day is a UTC day, counted from 1970-01-01.
type Day int32

// DayOf returns the UTC day of t.
func DayOf(t time.Time) Day { return Day(t.Unix() / 86400) }

// Time returns the first moment of d.
func (d Day) Time() time.Time { return time.Unix(int64(d)*86400, 0).UTC() }

// bytes lays the parts out as queue 44, salt's upper 4 | version 8, salt's middle 8, seq's upper 4
// | variant 2, day 16, salt's lower 10, seq's lower 36.
func (id ID) bytes() (b [16]byte) {
	if id.Queue >= trackOfProcessor {
		id.Salt = int(id.Seq >> seqBits)
	}
	q := uint64(id.Queue) & (1<<44 - 1)
	t := uint64(id.Salt) & saltMask
	s := uint64(id.Seq) & (1<<seqBits - 1)
	d := uint64(uint16(id.Day))
	hi := q<<20 | (t>>18)<<16 | 8<<12 | (t>>10&0xff)<<4 | s>>36
	lo := uint64(2)<<62 | d<<46 | (t&0x3ff)<<36 | s&(1<<36-1)
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

// Token is what a worker recognises one attempt by, also when it is sent again (S0.4). The time of arrival is in
// it, in microseconds, so that no two transactions ever have one token, whatever became of the store between them.
func (id ID) Token(arrival time.Time, attempt int) string {
	return id.sealed(arrival, strconv.Itoa(attempt))
}

// HookToken is what a worker recognises a hook by, however often it is delivered.
func (id ID) HookToken(arrival time.Time, h Hook) string { return id.sealed(arrival, string(h)) }

// sealed writes an id with a moment in hexadecimal microseconds, and what follows it.
func (id ID) sealed(at time.Time, rest string) string {
	return id.String() + "." + strconv.FormatInt(at.UnixMicro(), 16) + "." + rest
}

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
		Salt:  int(hi>>16&0xf<<18 | hi>>4&0xff<<10 | lo>>36&0x3ff),
		Seq:   int64(hi&0xf<<36 | lo&(1<<36-1)),
		Day:   Day(lo >> 46 & 0xffff),
	}
	if id.Queue >= trackOfProcessor {
		id.Seq, id.Salt = id.Seq|int64(id.Salt)<<seqBits, 0
	}
	if id.bytes() != [16]byte(raw) { // version or variant
		return ID{}, bad
	}
	return id, nil
}
