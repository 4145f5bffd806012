package luascript

// CheckKey is a stand-in.
func CheckKey(key string, cluster bool) string {
	if key == "" {
		return "it is empty"
	}
	if cluster && Slot(Derive("x", key)) != Slot(key) {
		return "its braces put the keys that belong to it into another cluster slot"
	}
	return ""
}
