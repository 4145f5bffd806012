package redlatch.interop;

import java.util.concurrent.LinkedBlockingQueue;

/** One owner of locks: a thread of its own, because that is what Redisson takes for the owner. */
final class Owner {
    private final LinkedBlockingQueue<Runnable> work = new LinkedBlockingQueue<>();
    private final Thread thread;

    Owner(String name) {
        thread = new Thread(this::loop, "owner-" + name);
        thread.setDaemon(true);
        thread.start();
    }

    /** Runs a command after those that this owner was given before; returns at once. */
    void run(Runnable r) {
        work.add(r);
    }

    /** Interrupts the command that runs now, if one does: it ends a lock() with InterruptedException. */
    void interrupt() {
        thread.interrupt();
    }

    private void loop() {
        while (true) {
            try {
                work.take().run();
            } catch (InterruptedException e) {
                // An interrupt between two commands has nobody to end.
            }
        }
    }
}
