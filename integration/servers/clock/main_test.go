package clock

import (
	"testing"

	"github.com/redlatch/redlatch/integration/bed"
)

func TestMain(m *testing.M) { bed.Main(m) }
