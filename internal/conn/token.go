package conn

// LastToken is the largest fencing token: scripts count in doubles.
const LastToken = 1<<53 - 1

// Token reads what a fencing counter stands at, at position i of an array reply; 0 if that is no token.
func (r Reply) Token(i int) uint64 {
	if n := r.Int(i); n > 0 && n <= LastToken {
		return uint64(n)
	}
	return 0
}
