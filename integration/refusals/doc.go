// Package refusals tests what the scripts of a holder answer when the server
// refuses writes, or has no memory left.
package refusals
