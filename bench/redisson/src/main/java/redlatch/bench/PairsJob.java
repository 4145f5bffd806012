package redlatch.bench;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import org.redisson.api.RLock;

/** Threads lock and unlock as fast as they can. */
final class PairsJob extends Job {
    private final boolean ownKeys;
    private final List<Counts> counts = new ArrayList<>();

    private static final class Counts {
        final Histogram waits = new Histogram();
        final Histogram pairs = new Histogram();
        long turns;
    }

    PairsJob(Board board, List<RLock> locks, boolean ownKeys) {
        super(board);
        this.ownKeys = ownKeys;
        for (RLock lock : locks) {
            Counts c = new Counts();
            counts.add(c);
            add(() -> {
                while (phase != Phase.ENDED) {
                    turn(lock, c);
                }
            });
        }
    }

    private void turn(RLock lock, Counts c) throws InterruptedException {
        long start = System.nanoTime();
        try {
            lock.lockInterruptibly();
        } catch (InterruptedException e) {
            // A waiter that never had its turn must not vanish from the tail.
            c.waits.add(System.nanoTime() - start);
            throw e;
        }
        long got = System.nanoTime();
        if (!ownKeys) {
            board.enter();
            board.leave();
        }
        boolean counted = phase == Phase.COUNTING;
        lock.unlock();
        if (counted) {
            c.turns++;
            c.waits.add(got - start);
            c.pairs.add(System.nanoTime() - start);
        }
    }

    @Override
    void write(ObjectNode result) {
        Histogram waits = new Histogram();
        Histogram pairs = new Histogram();
        ArrayNode turns = result.putArray("Counts");
        for (Counts c : counts) {
            waits.merge(c.waits);
            pairs.merge(c.pairs);
            turns.add(c.turns);
        }
        waits.write(result.putObject("Waits"));
        if (ownKeys) {
            pairs.write(result.putObject("Pairs"));
        }
    }
}
