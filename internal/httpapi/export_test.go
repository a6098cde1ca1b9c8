package httpapi

// Codes lists every code that a problem may have, with its status.
func Codes() map[string]int {
	all := map[string]int{}
	for code, p := range problems {
		all[code] = p.status
	}
	return all
}
