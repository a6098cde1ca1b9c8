package leader

// ParseMeta reads and judges a meta document in one step. What has no meaning here is passed over: tools say more than
// is asked. Invalid with the JSON pointer of what is wrong.
func ParseMeta(raw []byte) (*Definition, error) {
	m, err := ReadMeta(raw)
	if err != nil {
		return nil, err
	}
	return m.Definition()
}
