package redlatch.bench;

import com.fasterxml.jackson.databind.node.ObjectNode;
import org.redisson.api.RLock;

/** One workload in one process. */
interface Job {
    /** Makes a lock of the contender. */
    @FunctionalInterface
    interface Locks {
        RLock of(String key);
    }

    /** Returns when the workload is under way and warm, with what the others must know in {@code ready}. */
    void start(ObjectNode ready) throws Exception;

    /** From now on turns count. */
    void count();

    /** From now on they don't. */
    void stop();

    /** Waits for what {@link #start} began and completes the result. */
    void finish(ObjectNode result) throws Exception;
}
