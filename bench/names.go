package main

import "github.com/redlatch/redlatch/bench/internal/work"

// The words of package work that stand all over this one.
type (
	contender = work.Contender
	locker    = work.Locker
	hold      = work.Hold
	env       = work.Env
	spec      = work.Spec
	result    = work.Result
)

const (
	pairs    = work.Pairs
	handover = work.Handover
	holding  = work.Holding
	topics   = work.Topics
)

var newHistogram = work.NewHistogram
