package main

import (
	"fmt"
	"os"

	"github.com/redlatch/redlatch/bench/internal/work"
)

func main() {
	if os.Getenv(work.Variable) == "" {
		fmt.Fprintln(os.Stderr, "systems: go run ./bench -peers all starts this program")
		os.Exit(2)
	}
	os.Exit(work.Main(open, os.Stdin, os.Stdout))
}

func open(contender string, e work.Env) (work.Contender, error) {
	switch contender {
	case "etcd":
		return openEtcd(e)
	case "zookeeper":
		return openZookeeper(e)
	case "mariadb":
		return openMariadb(e)
	default:
		return nil, fmt.Errorf("systems: no contender is called %q", contender)
	}
}
