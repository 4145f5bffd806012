package redlatch.interop;

import java.util.ArrayList;
import java.util.List;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.ClusterServersConfig;
import org.redisson.config.Config;
import org.redisson.config.SingleServerConfig;

/**
 * The Redisson clients of this process: one for each independent server or
 * cluster that it was started with.
 */
final class Clients {
    private final List<RedissonClient> all = new ArrayList<>();

    /**
     * Connects as the arguments say.
     *
     * <pre>
     *   --address URL        one client for a standalone server; may be repeated
     *   --cluster URL,URL    one client for a cluster; may be repeated
     *   --watchdog MS        lockWatchdogTimeout
     *   --fair-wait MS       fairLockWaitTimeout
     * </pre>
     */
    static Clients open(String[] args) {
        List<String[]> servers = new ArrayList<>();
        long watchdog = 30_000;
        long fairWait = 300_000;
        for (int i = 0; i + 1 < args.length; i += 2) {
            String v = args[i + 1];
            switch (args[i]) {
                case "--address", "--cluster" -> servers.add(new String[] {args[i], v});
                case "--watchdog" -> watchdog = Long.parseLong(v);
                case "--fair-wait" -> fairWait = Long.parseLong(v);
                default -> throw new IllegalArgumentException("unknown argument " + args[i]);
            }
        }
        if (servers.isEmpty()) {
            throw new IllegalArgumentException("no --address and no --cluster");
        }
        Clients clients = new Clients();
        for (String[] s : servers) {
            Config config = new Config();
            config.setLockWatchdogTimeout(watchdog);
            config.setFairLockWaitTimeout(fairWait);
            // Small pools: a test runs several of these processes on few cores.
            config.setThreads(4);
            config.setNettyThreads(4);
            if (s[0].equals("--cluster")) {
                ClusterServersConfig c = config.useClusterServers();
                c.addNodeAddress(s[1].split(","));
                c.setMasterConnectionMinimumIdleSize(2).setSlaveConnectionMinimumIdleSize(1);
                c.setScanInterval(1000);
            } else {
                SingleServerConfig c = config.useSingleServer();
                c.setAddress(s[1]).setConnectionMinimumIdleSize(2);
            }
            clients.all.add(Redisson.create(config));
        }
        return clients;
    }

    RedissonClient get(int i) {
        return all.get(i);
    }

    /** The uuid of client i: the first half of every hash field that it writes. */
    String id(int i) {
        return ((Redisson) all.get(i)).getId();
    }

    /** The version of Redisson that really runs. */
    String version() {
        String v = Redisson.class.getPackage().getImplementationVersion();
        return v == null ? "unknown" : v;
    }

    void close() {
        all.forEach(RedissonClient::shutdown);
    }
}
