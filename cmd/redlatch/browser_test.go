package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// chromium is the browser's program; the test is skipped, loudly, where there is none.
func chromium(t *testing.T) string {
	t.Helper()
	must := os.Getenv("REDLATCH_CHROMIUM")
	if must != "" && must != "require" {
		_, err := exec.LookPath(must)
		testbed.Must(t, err)
		return must
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "headless-shell"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if must == "require" {
		t.Fatal("no chromium is on PATH: scripts/ensure-chromium.sh installs one on Debian")
	}
	testbed.Skip(t, "the pages of serve: no chromium is on PATH (scripts/ensure-chromium.sh installs one on Debian)")
	return ""
}

// browser opens a page of that size, in a light or a dark scheme.
func browser(t *testing.T, width, height int64, scheme, url string) context.Context {
	t.Helper()
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium(t)))
	if os.Getuid() == 0 {
		opts = append(opts, chromedp.NoSandbox) // Chromium's own rule for root
	}
	alloc, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, cancel := chromedp.NewContext(alloc)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits for the end of the browser
		cancel()
		stop()
	})
	var view []chromedp.EmulateViewportOption
	if width < 600 {
		view = append(view, chromedp.EmulateMobile, chromedp.EmulateScale(1.5))
	}
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}
	testbed.Must(t, chromedp.Do(ctx,
		chromedp.EmulateViewport(width, height, view...),
		chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
			_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features})
			return err
		}),
		chromedp.Navigate(url),
	))
	return ctx
}

// reads waits until an element of the page has all parts.
func reads(t *testing.T, ctx context.Context, sel string, parts ...string) string { //nolint:revive // t first, as in testing
	t.Helper()
	var text string
	until(t, fmt.Sprintf("%s reads %q", sel, parts), func() bool {
		js := fmt.Sprintf(`(document.querySelector(%q)||{innerText:""}).innerText`, sel)
		got, err := chromedp.Run(ctx, chromedp.Evaluate[string](js))
		if err != nil {
			return false
		}
		text = got
		return hasAll(text, parts)
	}, func() string { return text })
	return text
}

func act(t *testing.T, ctx context.Context, steps ...chromedp.Action[chromedp.Void]) { //nolint:revive // t first, as in testing
	t.Helper()
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	testbed.Must(t, chromedp.Do(limited, steps...))
}

// click presses an element as soon as it is to be seen, in one step: the page may put another in its place at any time.
func click(sel string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		js := fmt.Sprintf(`(() => { const e = document.querySelector(%q), seen = !!e && e.getClientRects().length > 0; if (seen) e.click(); return seen })()`, sel)
		for ; ; time.Sleep(10 * time.Millisecond) { // until the end of ctx
			if done, err := chromedp.Run(ctx, chromedp.Evaluate[bool](js)); err != nil || done {
				return err
			}
		}
	})
}

// value is that of an expression in the page.
func value[T any](t *testing.T, ctx context.Context, js string) T { //nolint:revive // t first, as in testing
	t.Helper()
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	v, err := chromedp.Run(limited, chromedp.Evaluate[T](js))
	testbed.Must(t, err)
	return v
}

// picture keeps a screenshot when REDLATCH_TEST_PICTURES names a folder.
func picture(t *testing.T, ctx context.Context, name string) { //nolint:revive // t first, as in testing
	t.Helper()
	dir := os.Getenv("REDLATCH_TEST_PICTURES")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	testbed.Must(t, err)
	testbed.Must(t, os.WriteFile(filepath.Join(dir, name), png, 0o644))
}

// A lock that is taken, queued for, handed over, lost and taken away is seen on the page.
func TestBrowser(t *testing.T) {
	chromium(t)
	s := server(t)
	c, w := client(t, s, named("checkout/pod-1")), client(t, s, named("checkout/pod-2"))
	ctx := t.Context()
	t.Setenv("REDLATCH_SERVE_TOKEN", secret)
	p := serving(t, s, "--allow-unlock")
	var others []redlatch.Hold
	for i := range 6 {
		others = append(others, hold(t, c.RLock(fmt.Sprintf("orders:%d", 40+i))))
	}
	others = append(others, hold(t, c.ReadWriteLock("catalogue").ReadLock()), hold(t, w.ReadWriteLock("catalogue").ReadLock()))
	evil := hold(t, c.RLock("<img src=x onerror=alert(1)>"))
	b := browser(t, 1280, 900, "light", p.url+"/#token="+secret)
	reads(t, b, "#state", "live")
	reads(t, b, "#locks", "orders:40", "catalogue", "checkout/pod-1", "<img src=x onerror=alert(1)>")

	lacks(t, value[string](t, b, `location.href + document.cookie + Object.values(localStorage)`), secret)
	testbed.Equal(t, value[bool](t, b, `document.querySelector("#locks img") !== null`), false, "a name as an element")
	unlock(t, evil)

	// A name that neither prints nor is UTF-8 is shown, and opened, in one writing.
	odd := hold(t, c.RLock("bad\xff\u202e\n"))
	const written = `bad\xff\u202e\n`
	reads(t, b, "#locks", written)
	value[bool](t, b, fmt.Sprintf(`(location.hash = "#/lock/" + encodeURIComponent(%q)) !== ""`, written))
	reads(t, b, "#detail", written, "held", "checkout/pod-1")
	unlock(t, odd)
	reads(t, b, "#detail .badge.free", "free")

	// Taken.
	h := hold(t, c.FairLock("invoice:7"))
	reads(t, b, "#locks", "invoice:7")
	act(t, b, click(`a[data-name="invoice:7"]`))
	reads(t, b, "#detail", "invoice:7", "held", "checkout/pod-1", "127.0.0.1:")

	// Queued for.
	var got []<-chan redlatch.Hold
	for i := range 3 {
		got = append(got, waiting(t, redlatch.WithOwner(ctx, fmt.Sprintf("job %d", i)), w.FairLock("invoice:7")))
		untilQueued(t, c, "invoice:7", i+1)
	}
	reads(t, b, "#detail", "Queue (3)", "job 0", "job 2", "waits ")
	reads(t, b, "#locks", "3 waiting")

	// Handed over.
	unlock(t, h)
	first := <-got[0]
	reads(t, b, "#detail", "Queue (2)", "checkout/pod-2 job 0")
	reads(t, b, ".turns", "checkout/pod-1", "job 0", "now")
	lacks(t, reads(t, b, "#locks", "2 waiting"), "onerror") // of a lock that is free
	picture(t, b, "serve-light.png")

	// Taken away, after a question that can be answered with no.
	act(t, b, click(".party button"), chromedp.WaitVisible("#ask"))
	reads(t, b, "#ask", "invoice:7", "checkout/pod-2", "it goes to checkout/pod-2 job 1")
	act(t, b, click("#ask-no"), chromedp.WaitNotVisible("#ask"))
	testbed.Equal(t, inspect(t, c, "invoice:7").QueueLength, 2, "the queue after no")
	act(t, b, click(".party button"), chromedp.SendKeys("#ask-reason", "<b>hangs"), click("#ask-yes"))
	second := <-got[1]
	reads(t, b, "#said", "was taken away")
	reads(t, b, ".turns", "taken away from here", "job 1")
	reads(t, b, "#history", "Evictions", "taken from checkout/pod-2", "by 127.0.0.1", "<b>hangs")
	taken(t, first)
	unlock(t, second)
	unlock(t, <-got[2])
	reads(t, b, "#detail .badge.free", "free")

	// Lost: a lease that nobody renews any more.
	dies := client(t, s, named("checkout/pod-3"), func(c *redlatch.Config) { c.LeaseTime = 4 * time.Second }) // long enough for several looks
	_ = hold(t, dies.FairLock("invoice:7"))
	reads(t, b, "#detail .badge.held", "held")
	dies.Close()
	reads(t, b, ".turns", "lost: its lease ran out")

	// Search, order, keys and the colours of the night.
	act(t, b, chromedp.SendKeys("#filter", "orders:4"))
	until(t, "the list is filtered", func() bool {
		text := reads(t, b, "#locks", "orders:40")
		return !strings.Contains(text, "catalogue")
	})
	act(t, b, click("#theme"))
	reads(t, b, "#locks", "orders:41")
	testbed.Equal(t, value[string](t, b, `getComputedStyle(document.body).backgroundColor`), "rgb(20, 21, 23)", "dark")

	// A phone, dark.
	again := hold(t, c.FairLock("invoice:7"))
	waits := waiting(t, ctx, w.FairLock("invoice:7"))
	phone := browser(t, 390, 844, "dark", p.url)
	act(t, phone, chromedp.WaitVisible("#token"), chromedp.SendKeys("#token", secret+"x"), click("#login button"), chromedp.WaitVisible("#token"))
	const shows = `document.querySelector("#locks li") !== null || sessionStorage.length > 0`
	testbed.Equal(t, value[bool](t, phone, shows), false, "whether a wrong token is kept, or shows something")
	act(t, phone, chromedp.SendKeys("#token", secret), click("#login button"))
	reads(t, phone, "#locks", "invoice:7", "orders:45")
	wide := func(what string) {
		t.Helper()
		testbed.AtMost(t, value[int](t, phone, `document.documentElement.scrollWidth - innerWidth`), 0, "pixels that it is wider than the phone:", what)
	}
	wide("the list")
	reads(t, phone, "#history", "Evictions", "<b>hangs")
	const columns = `new Set([...document.querySelectorAll("#history li > *")].map((e) => e.offsetLeft)).size`
	testbed.Equal(t, value[int](t, phone, columns), 1, "columns of the history on a phone")
	act(t, phone, click(`a[data-name="invoice:7"]`))
	reads(t, phone, "#detail", "Queue (1)", "Who held it")
	wide("the lock")
	picture(t, phone, "serve-phone.png")
	act(t, phone, click(".back"))
	reads(t, phone, "#locks", "orders:45")
	picture(t, b, "serve-dark.png")

	unlock(t, again)
	unlock(t, <-waits)
	unlock(t, others...)

	// Of a server that is frozen the page says since when it is silent, and turns grey; a new one says no more than it knows.
	last := hold(t, c.FairLock("invoice:7"))
	reads(t, b, "#detail", "lease left", "29s")
	s.Freeze(t)
	frozen := time.Now()
	reads(t, b, "#state", "no answer since ")
	testbed.AtMost(t, time.Since(frozen), 4*time.Second, "it is live for")
	const left = `document.querySelector("#detail .facts b").textContent`
	reads(t, phone, "#state", "no answer since ")
	testbed.AtMost(t, value[int](t, phone, `document.querySelector("#state").offsetHeight`), 30, "pixels: on a phone it breaks into lines")
	testbed.Equal(t, value[int](t, b, `now() - state.came - state.skew`), 0, "milliseconds that it shows after the last answer")
	before := value[string](t, b, left)
	time.Sleep(1100 * time.Millisecond) // what must not happen has no event
	if grey := value[string](t, b, `getComputedStyle(document.querySelector("main")).filter`); grey != "grayscale(1)" || value[string](t, b, left) != before {
		t.Errorf("its colours are %q, or it counts on from %s", grey, before)
	}
	act(t, phone, chromedp.Navigate(p.url+"/?"))
	reads(t, phone, "#none", "Connecting …")
	reads(t, phone, "#share", budget+": among very many keys, the first one takes minutes.")
	s.Thaw(t)
	reads(t, b, "#state", "live")
	unlock(t, last)

	// A server that is gone is said.
	c.Close()
	w.Close()
	s.Kill(t)
	reads(t, b, "#trouble", "unavailable")
	reads(t, b, "#state", "in trouble since ")
	s.Restart(t, testbed.Empty)
	reads(t, b, "#state", "live")
}

// However many hold a lock and wait for it, its past is near the top, and the others are shown when they are asked for.
func TestBrowserManyParties(t *testing.T) {
	chromium(t)
	s := server(t)
	defer s.Do(t, "FLUSHALL")
	s.Do(t, "EVAL", `redis.call('HSET', KEYS[1], 'mode', 'read')
		for i = 1, 120 do
			redis.call('HSET', KEYS[1], ARGV[1] .. i, 1)
			redis.call('SET', '{many}:' .. ARGV[1] .. i .. ':rwlock_timeout:1', 1, 'PX', 300000)
		end
		redis.call('PEXPIRE', KEYS[1], 300000)`, "1", "many", "8743c9c0-0795-4907-87fd-6c719a6b4586:")
	s.Do(t, "HSET", "queued", "8743c9c0-0795-4907-87fd-6c719a6b4586:1", "1")
	for i := range 120 {
		s.Do(t, "RPUSH", "redisson_lock_queue:{queued}", fmt.Sprintf("8743c9c0-0795-4907-87fd-6c719a6b4586:%d", 100+i))
	}
	p := serving(t, s)
	for name, row := range map[string]string{"many": ".party", "queued": ".queue li"} {
		b := browser(t, 1280, 900, "light", p.url+"/#/lock/"+name)
		reads(t, b, "#detail", "Show 90 more", "Who held it")
		rows := fmt.Sprintf("document.querySelectorAll(%q).length", row)
		testbed.Equal(t, value[int](t, b, rows), 10, "rows of", name)
		if row != ".party" && !value[bool](t, b, `document.querySelector(".strip").offsetTop < document.querySelector(".queue").offsetTop`) {
			t.Error("the past is below the queue")
		}
		act(t, b, click(`[data-name^="more "]`))
		reads(t, b, "#detail", "and 20 more: redlatch show "+name)
		testbed.Equal(t, value[int](t, b, rows), 100, "all rows of", name)
	}
}
