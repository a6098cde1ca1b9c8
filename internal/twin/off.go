//go:build !twin

package twin

// Planted says whether the fault of a name is planted. It is not.
func Planted(string) bool { return false }

// SQL returns the text. With the tag it returns another where the fault of a name is planted.
func SQL(_, text, _, _ string) string { return text }
