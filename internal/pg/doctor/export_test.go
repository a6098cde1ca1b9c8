package doctor

import "time"

// NameAll lets every open transaction be named.
func NameAll() { recent = -time.Hour }
