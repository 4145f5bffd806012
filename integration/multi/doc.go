// Package multi holds the tests of MultiLock and QuorumLock on real servers.
package multi
