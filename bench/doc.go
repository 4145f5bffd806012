// Package bench measures redlatch beside other lock libraries in one run.
//
// It is a module of its own, so that the libraries it compares with never
// become dependencies of the SDK.
package bench
