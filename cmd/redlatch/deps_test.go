package main

import (
	_ "github.com/chromedp/chromedp"
	_ "github.com/creack/pty"
	_ "go.uber.org/goleak"
)
