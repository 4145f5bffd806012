package redlatch.bench;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import org.redisson.api.RLock;

/** Threads lock and unlock as fast as they can. */
final class PairsJob implements Job {
    private enum Phase {
        WARMING,
        COUNTING,
        ENDED
    }

    private final long warmUpMs;
    private final long sectionMs;
    private final boolean ownKeys;
    private final List<Pairs> threads = new ArrayList<>();
    private final AtomicReference<Throwable> failure = new AtomicReference<>();
    private volatile Phase phase = Phase.WARMING;

    PairsJob(JsonNode spec, Locks locks) {
        warmUpMs = spec.get("WarmUp").asLong() / 1_000_000;
        sectionMs = spec.get("Section").asLong() / 1_000_000;
        ownKeys = spec.get("OwnKeys").asBoolean();
        for (int g = 0; g < spec.get("Goroutines").asInt(); g++) {
            String key = spec.get("Key").asText();
            threads.add(new Pairs(locks.of(ownKeys ? key + ":" + spec.get("Process").asInt() + ":" + g : key)));
        }
    }

    @Override
    public void start(ObjectNode ready) throws InterruptedException {
        threads.forEach(Thread::start);
        Thread.sleep(warmUpMs);
    }

    @Override
    public void count() {
        phase = Phase.COUNTING;
    }

    @Override
    public void stop() {
        phase = Phase.ENDED;
    }

    @Override
    public void finish(ObjectNode result) throws Exception {
        threads.forEach(Thread::interrupt);
        Histogram waits = new Histogram();
        Histogram pairs = new Histogram();
        ArrayNode counts = result.putArray("Counts");
        long insideNs = 0;
        for (Pairs t : threads) {
            t.join();
            waits.merge(t.waits);
            pairs.merge(t.pairs);
            counts.add(t.turns);
            insideNs += t.insideNs;
        }
        if (failure.get() != null) {
            throw new IllegalStateException("a thread failed", failure.get());
        }
        result.put("Inside", insideNs);
        waits.write(result.putObject("Waits"));
        if (ownKeys) {
            pairs.write(result.putObject("Pairs"));
        }
    }

    private final class Pairs extends Thread {
        private final RLock lock;
        private final Histogram waits = new Histogram();
        private final Histogram pairs = new Histogram();
        private long turns;
        private long insideNs;

        Pairs(RLock lock) {
            this.lock = lock;
        }

        @Override
        public void run() {
            try {
                while (phase != Phase.ENDED) {
                    turn();
                }
            } catch (Exception e) {
                // The end of the measurement interrupts; Redisson wraps it in places.
                if (phase != Phase.ENDED) {
                    failure.compareAndSet(null, e);
                }
            }
        }

        private void turn() throws InterruptedException {
            long start = System.nanoTime();
            try {
                lock.lockInterruptibly();
            } catch (InterruptedException e) {
                // A waiter that never had its turn must not vanish from the tail.
                waits.add(System.nanoTime() - start);
                throw e;
            }
            long got = System.nanoTime();
            boolean counted = phase == Phase.COUNTING;
            long inside = 0;
            if (sectionMs > 0) {
                Thread.sleep(sectionMs);
                inside = System.nanoTime() - got;
            }
            lock.unlock();
            if (counted) {
                turns++;
                insideNs += inside;
                waits.add(got - start);
                pairs.add(System.nanoTime() - start - inside);
            }
        }
    }
}
