package docs

import (
	"flag"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/testbed"
)

var redraw = flag.Bool("redraw", false, "draw docs/images/speed.svg anew")

// The README's chart shows the figures of docs/PERFORMANCE.md, in a light page and in a dark one.
func TestSpeedChart(t *testing.T) {
	const path = "docs/images/speed.svg"
	want := chart(t, read(t, "docs/PERFORMANCE.md"))
	if *redraw {
		write(t, path, want)
	}
	if read(t, path) != want {
		t.Errorf("%s shows other figures: go test ./docs -run SpeedChart -redraw", path)
	}
}

var bar = regexp.MustCompile(`(?m)^(\S+) +▇+ +([0-9.]+)$`)

// chart draws the bars of the page: how many times the acquisitions of the best other library.
func chart(t *testing.T, page string) string {
	t.Helper()
	const left, octave, row, top = 150, 60, 26, 46
	at := func(times float64) float64 { return left + octave*(2+math.Log2(times)) }
	rows := bar.FindAllStringSubmatch(page, -1)
	testbed.AtLeast(t, len(rows), 5, "bars")
	bottom := top + row*len(rows)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="680" height="%d" role="img">
<style>
text { font: 13px sans-serif; fill: #1f2328 } .more { fill: #0969da } .less { fill: #8c959f } line { stroke: #d0d7de } .one { stroke: #1f2328 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .more { fill: #4493f8 } .less { fill: #7d8590 } line { stroke: #3d444d } .one { stroke: #e6edf3 }
}
</style>
<text x="%d" y="16">Acquisitions per second: redlatch, × the best other Go library</text>
`, bottom+10, left)
	for _, times := range []float64{0.25, 0.5, 1, 2, 4, 8, 16, 32} {
		class := ""
		if times == 1 {
			class = ` class="one"`
		}
		fmt.Fprintf(&b, `<text x="%.0f" y="36" text-anchor="middle">%g</text><line x1="%.0[1]f" x2="%.0[1]f" y1="42" y2="%[3]d"%[4]s/>`+"\n",
			at(times), times, bottom, class)
	}
	for i, found := range rows {
		times, err := strconv.ParseFloat(found[2], 64)
		testbed.Must(t, err)
		class, y := "more", top+row*i
		if times < 1 {
			class = "less"
		}
		from, to := min(at(1), at(times)), max(at(1), at(times))
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text><rect class="%s" x="%.1f" y="%d" width="%.1f" height="18"/>`,
			left-10, y+14, found[1], class, from, y, to-from)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s</text>`+"\n", to+6, y+14, found[2])
	}
	return b.String() + "</svg>\n"
}
