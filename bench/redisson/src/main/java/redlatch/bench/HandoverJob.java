package redlatch.bench;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import org.redisson.api.RLock;

/** Two processes pass one lock to and fro, as the Go job of that name: the same board, the same pauses. */
final class HandoverJob extends Job {
    private static final long MIN_PAUSE_US = 2_000;
    private static final long MAX_PAUSE_US = 12_000;

    private record Pass(long number, boolean gave, long unixNs) {}

    private final RLock lock;
    private final int process;
    private final List<Pass> passes = new ArrayList<>(); // of the thread, until it has ended

    HandoverJob(Board board, RLock lock, int process) {
        super(board);
        this.lock = lock;
        this.process = process;
        add(this::pass);
    }

    private void pass() throws InterruptedException {
        for (long turn = process; ; turn += 2) {
            board.await(Board.TAKEN, turn);
            board.set(Board.AWAITED, turn);
            lock.lockInterruptibly();
            record(turn, false);
            board.enter();
            board.set(Board.TAKEN, turn + 1);
            board.await(Board.AWAITED, turn + 1);
            long pauseUs = ThreadLocalRandom.current().nextLong(MIN_PAUSE_US, MAX_PAUSE_US);
            Thread.sleep(pauseUs / 1000, (int) (pauseUs % 1000) * 1000);
            board.leave();
            record(turn + 1, true);
            lock.unlock();
        }
    }

    private void record(long number, boolean gave) {
        Instant now = Instant.now();
        if (phase == Phase.COUNTING) {
            passes.add(new Pass(number, gave, now.getEpochSecond() * 1_000_000_000L + now.getNano()));
        }
    }

    @Override
    void write(ObjectNode result) {
        ArrayNode list = result.putArray("Passes");
        for (Pass p : passes) {
            list.addObject().put("Number", p.number).put("Gave", p.gave).put("UnixNs", p.unixNs);
        }
    }
}
