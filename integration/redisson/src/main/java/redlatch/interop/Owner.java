package redlatch.interop;

import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicInteger;

/** One owner of locks: a thread of its own, because that is what Redisson takes for the owner. */
final class Owner {
    private final LinkedBlockingQueue<Runnable> work = new LinkedBlockingQueue<>();
    private final AtomicInteger commands = new AtomicInteger(); // not answered yet
    private final Thread thread;

    Owner(String name) {
        thread = new Thread(this::loop, "owner-" + name);
        thread.setDaemon(true);
        thread.start();
    }

    /** Runs a command after those that this owner was given before; returns at once. */
    void run(Runnable r) {
        commands.incrementAndGet();
        work.add(r);
    }

    /** Interrupts the command that runs now, if one does: it ends a lock() with InterruptedException. */
    void interrupt() {
        thread.interrupt();
    }

    /** Whether it has nothing to do, or sleeps until a message comes: Redisson's waiters do so on a semaphore. */
    boolean asleep() {
        if (commands.get() == 0) {
            return true;
        }
        for (StackTraceElement frame : thread.getStackTrace()) {
            if (frame.getClassName().equals("java.util.concurrent.Semaphore")) {
                Thread.State state = thread.getState();
                return state == Thread.State.WAITING || state == Thread.State.TIMED_WAITING;
            }
        }
        return false;
    }

    private void loop() {
        while (true) {
            try {
                Runnable command = work.take();
                try {
                    command.run();
                } finally {
                    commands.decrementAndGet();
                }
            } catch (InterruptedException e) {
                // An interrupt between two commands has nobody to end.
            }
        }
    }
}
