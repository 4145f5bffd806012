//go:build !race

package engine

const poison = false
