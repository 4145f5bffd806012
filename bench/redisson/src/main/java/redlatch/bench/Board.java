package redlatch.bench;

import java.io.IOException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** The memory that the processes of a measurement share, as the Go package bench/internal/work has it. */
final class Board {
    private static final VarHandle LONGS =
            MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.nativeOrder());
    private static final int INSIDE = 0;
    static final int TAKEN = 8;
    static final int AWAITED = 16;
    private static final int OVER = 24;
    private static final long WRITER = 1L << 32;
    private final ByteBuffer memory;

    Board(String file) throws IOException {
        try (FileChannel f = FileChannel.open(Path.of(file), StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            memory = f.map(FileChannel.MapMode.READ_WRITE, 0, f.size());
        }
    }

    /** Notes that this thread holds the lock. */
    void enter() {
        long before = (long) LONGS.getAndAdd(memory, INSIDE, WRITER);
        if (before != 0 && (long) LONGS.getVolatile(memory, OVER) == 0) {
            throw new IllegalStateException("two were inside at once");
        }
    }

    void leave() {
        LONGS.getAndAdd(memory, INSIDE, -WRITER);
    }

    /** Says that the end has begun. */
    void over() {
        set(OVER, 1);
    }

    void set(int cell, long value) {
        LONGS.setVolatile(memory, cell, value);
    }

    /** Waits until the other process has written that number. */
    void await(int cell, long atLeast) throws InterruptedException {
        while ((long) LONGS.getVolatile(memory, cell) < atLeast) {
            Thread.sleep(0, 500_000);
        }
    }
}
