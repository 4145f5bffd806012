// Command systems runs the processes of a measurement for what people lock with instead of Redis: etcd, ZooKeeper and
// MariaDB. The program in the folder above starts it with -peers all.
//
// It is a module of its own, so that neither the SDK nor the comparison of libraries has these clients among its
// dependencies. The server of etcd is built from etcdserver, which is another one for the same reason.
package main
