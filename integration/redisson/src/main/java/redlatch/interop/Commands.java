package redlatch.interop;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RLock;
import org.redisson.client.codec.StringCodec;

/**
 * The verbs. Times are milliseconds; a lease of 0 means the watchdog.
 *
 * <pre>
 *   field   owner                        value: the owner's hash field, uuid:threadId
 *   lock    owner lock lease             waits without limit
 *   trylock owner lock wait lease        value: true or false; wait -1: tryLock() without arguments
 *   unlock  owner lock
 *   force   owner lock                   value: true or false
 *   state   owner lock                   value: locked=..,count=..,ttl=..
 *   token   owner lock                   value: lockAndGetToken()
 *   trytoken owner lock wait lease       value: the token or null
 *   lasttoken owner lock                 value: getToken()
 *   loop    owner lock,lock,... rounds limit record tag hold wait lease reenter
 * </pre>
 *
 * <p>loop takes one of the locks at random, again and again: it ends after so many
 * rounds (0: no limit), after limit milliseconds (0: none), or at "halt". Inside each
 * section it appends {@code E tag owner mode names} to the Redis list named record, holds
 * for hold microseconds, and appends {@code X ...} before it unlocks; the list is the
 * proof of what excluded what. wait -1 locks without limit. With reenter 1 every
 * other round takes the lock twice. Value: acquired=..,tried=..,lost=..,failed=..
 * where lost are unlocks that Redisson refused because the lock had gone.
 *
 * <p>Run on the owner's own thread, so nothing here is shared but the halt flag.
 */
final class Commands {
    private final Clients clients;
    private final Map<String, Locks> locks = new java.util.concurrent.ConcurrentHashMap<>();
    private volatile boolean halted;

    Commands(Clients clients) {
        this.clients = clients;
    }

    /** Ends every loop after its present round. */
    void halt() {
        halted = true;
    }

    String run(String verb, String owner, String[] a) throws Exception {
        Locks mine = locks.computeIfAbsent(owner, o -> new Locks(clients));
        switch (verb) {
            case "field":
                return clients.id(0) + ":" + Thread.currentThread().getId();
            case "lock":
                lock(mine.get(a[0]), ms(a[1]));
                return "-";
            case "trylock":
                return String.valueOf(tryLock(mine.get(a[0]), ms(a[1]), ms(a[2])));
            case "unlock":
                mine.get(a[0]).unlock();
                return "-";
            case "force":
                return String.valueOf(mine.get(a[0]).forceUnlock());
            case "state": {
                RLock l = mine.get(a[0]);
                return "locked=" + l.isLocked() + ",count=" + l.getHoldCount() + ",ttl=" + l.remainTimeToLive();
            }
            case "token":
                return String.valueOf(mine.fenced(a[0]).lockAndGetToken());
            case "trytoken":
                return String.valueOf(mine.fenced(a[0]).tryLockAndGetToken(ms(a[1]), lease(ms(a[2])), TimeUnit.MILLISECONDS));
            case "lasttoken":
                return String.valueOf(mine.fenced(a[0]).getToken());
            case "loop":
                return loop(mine, owner, a);
            default:
                throw new IllegalArgumentException("unknown verb " + verb);
        }
    }

    // The interruptible form differs from lock() only in that "interrupt" can end it.
    private static void lock(RLock lock, long leaseMs) throws InterruptedException {
        if (leaseMs > 0) {
            lock.lockInterruptibly(leaseMs, TimeUnit.MILLISECONDS);
        } else {
            lock.lockInterruptibly();
        }
    }

    private static boolean tryLock(RLock lock, long waitMs, long leaseMs) throws InterruptedException {
        if (waitMs < 0) {
            return lock.tryLock();
        }
        return lock.tryLock(waitMs, lease(leaseMs), TimeUnit.MILLISECONDS);
    }

    private String loop(Locks mine, String owner, String[] a) throws Exception {
        String[] specs = a[0].split(",");
        long rounds = ms(a[1]);
        long limit = ms(a[2]);
        List<String> record = clients.get(0).getList(a[3], StringCodec.INSTANCE);
        String tag = a[4];
        long holdUs = ms(a[5]);
        long wait = ms(a[6]);
        long lease = ms(a[7]);
        boolean reenter = a[8].equals("1");
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(limit);
        Map<String, Integer> n = new HashMap<>(Map.of("acquired", 0, "tried", 0, "lost", 0, "failed", 0, "longest", 0));
        while (!halted && (rounds == 0 || n.get("acquired") < rounds) && (limit == 0 || System.nanoTime() < end)) {
            String spec = specs[ThreadLocalRandom.current().nextInt(specs.length)];
            n.merge("tried", 1, Integer::sum);
            RLock lock = mine.get(spec);
            boolean held = false;
            long began = System.nanoTime();
            try {
                if (wait < 0) {
                    lock(lock, lease);
                    held = true;
                } else {
                    held = tryLock(lock, wait, lease);
                }
            } catch (org.redisson.client.RedisException e) {
                e.printStackTrace();
                n.merge("failed", 1, Integer::sum);
            }
            if (!held) {
                continue;
            }
            n.merge("longest", (int) TimeUnit.NANOSECONDS.toMicros(System.nanoTime() - began), Math::max);
            boolean twice = reenter && n.merge("acquired", 1, Integer::sum) % 2 == 0;
            if (!reenter) {
                n.merge("acquired", 1, Integer::sum);
            }
            String section = tag + " " + owner + " " + Locks.mode(spec) + " " + Locks.names(spec);
            record.add("E " + section);
            if (twice) {
                lock(lock, lease);
            }
            if (holdUs > 0) {
                TimeUnit.MICROSECONDS.sleep(holdUs);
            }
            try {
                if (twice) {
                    lock.unlock();
                }
                record.add("X " + section);
                lock.unlock();
            } catch (IllegalMonitorStateException e) {
                n.merge("lost", 1, Integer::sum);
            }
        }
        return "acquired=" + n.get("acquired") + ",tried=" + n.get("tried") + ",lost=" + n.get("lost") + ",failed=" + n.get("failed")
            + ",longest=" + n.get("longest");
    }

    private static long ms(String s) {
        return Long.parseLong(s);
    }

    // Redisson writes "the watchdog" as -1.
    private static long lease(long ms) {
        return ms > 0 ? ms : -1;
    }
}
