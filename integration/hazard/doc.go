// Package hazard holds tests of what all lock kinds have to withstand alike.
package hazard
