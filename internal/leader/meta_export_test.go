package leader

// ParseMeta reads and judges a meta document in one step. It passes over members without a meaning here: tools say more
// than is asked. Invalid with the JSON pointer of the fault.
func ParseMeta(raw []byte) (*Definition, error) {
	m, err := ReadMeta(raw)
	if err != nil {
		return nil, err
	}
	return m.Definition()
}
