package lock

import "strings"

// Join is errors.Join with a one-line message. It leaves out nil errors; a single error
// is returned as it is.
func Join(errs ...error) error {
	var all joined
	for _, err := range errs {
		if err != nil {
			all = append(all, err)
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return all
}

type joined []error

func (e joined) Error() string {
	parts := make([]string, len(e))
	for i, err := range e {
		parts[i] = oneLine(err.Error())
	}
	return strings.Join(parts, "; ")
}

// Unwrap leads to each error.
func (e joined) Unwrap() []error { return e }

// oneLine makes a message one line: those of servers, errors.Join and callers may have
// more.
func oneLine(text string) string {
	if !strings.ContainsAny(text, "\r\n") {
		return text
	}
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\r' || r == '\n' })
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
	}
	return strings.Join(lines, "; ")
}
