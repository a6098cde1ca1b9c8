package doctor

import "time"

// NameAll lets every open transaction be named.
func NameAll() { recent = -time.Hour }

// Fullness is what is found where so much of the queue of NOTIFY is in use.
var Fullness = fullness
