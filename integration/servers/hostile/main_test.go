// Package hostile tests what whoever may write to some key of a server, or publish there, can do to
// those who lock: nothing but what SECURITY.md says.
package hostile

import (
	"testing"

	"github.com/redlatch/redlatch/integration/bed"
)

func TestMain(m *testing.M) { bed.Main(m) }

// java is an owner of Redisson's, by number.
const java = "6d4e6c1a-0000-4000-8000-00000000000a:"
