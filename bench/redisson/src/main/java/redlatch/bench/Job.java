package redlatch.bench;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;

/** One workload in one process: threads that lock and unlock until they are interrupted. */
abstract class Job {
    enum Phase {
        WARMING,
        COUNTING,
        ENDED
    }

    @FunctionalInterface
    interface Work {
        void run() throws Exception;
    }

    final Board board;
    volatile Phase phase = Phase.WARMING;
    private final List<Thread> threads = new ArrayList<>();
    private final AtomicReference<Throwable> failure = new AtomicReference<>();

    Job(Board board) {
        this.board = board;
    }

    final void add(Work work) {
        threads.add(new Thread(() -> {
            try {
                work.run();
            } catch (Exception e) {
                // The end of the measurement interrupts; Redisson wraps it in places.
                if (phase != Phase.ENDED) {
                    failure.compareAndSet(null, e);
                }
            }
        }));
    }

    final void start() {
        threads.forEach(Thread::start);
    }

    /** Ends the threads and completes the result. */
    final void finish(ObjectNode result) throws InterruptedException {
        threads.forEach(Thread::interrupt);
        for (Thread t : threads) {
            t.join();
        }
        if (failure.get() != null) {
            throw new IllegalStateException("a thread failed: " + failure.get(), failure.get());
        }
        write(result);
    }

    /** Writes what was counted, once the threads have ended. */
    abstract void write(ObjectNode result);
}
