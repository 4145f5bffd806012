package redlatch.bench;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicReference;
import org.redisson.api.RLock;

/** Two processes pass one lock to and fro, as the Go job of that name: the same bytes, the same pauses. */
final class HandoverJob implements Job {
    private static final long MIN_PAUSE_US = 2_000;
    private static final long MAX_PAUSE_US = 12_000;

    private record Pass(int number, boolean gave, long unixNs) {}

    private final JsonNode spec;
    private final RLock lock;
    private final boolean first;
    private final List<Pass> passes = new ArrayList<>(); // of the thread, until it has ended
    private final AtomicReference<Throwable> failure = new AtomicReference<>();
    private final CountDownLatch held = new CountDownLatch(1);
    private ServerSocket listener;
    private Thread thread;
    private volatile Socket socket;
    private volatile boolean counting;
    private volatile boolean ended;

    HandoverJob(JsonNode spec, Locks locks) {
        this.spec = spec;
        lock = locks.of(spec.get("Key").asText());
        first = spec.get("Process").asInt() == 0;
    }

    @Override
    public void start(ObjectNode ready) throws Exception {
        if (first) {
            listener = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
            ready.put("Peer", "127.0.0.1:" + listener.getLocalPort());
        }
        thread = new Thread(this::run);
        thread.start();
        if (first) {
            held.await(); // before the other process hears of it, which would take the lock else
        } else {
            Thread.sleep(spec.get("WarmUp").asLong() / 1_000_000);
        }
    }

    @Override
    public void count() {
        counting = true;
    }

    @Override
    public void stop() {
        counting = false;
        ended = true;
    }

    @Override
    public void finish(ObjectNode result) throws Exception {
        thread.interrupt();
        Socket s = socket;
        if (s != null) {
            s.close();
        }
        if (listener != null) {
            listener.close();
        }
        thread.join();
        if (failure.get() != null) {
            throw new IllegalStateException("handing over failed", failure.get());
        }
        ArrayNode list = result.putArray("Passes");
        for (Pass p : passes) {
            list.addObject().put("Number", p.number).put("Gave", p.gave).put("UnixNs", p.unixNs);
        }
    }

    private void run() {
        try {
            boolean mine = first;
            if (mine) {
                lock.lockInterruptibly();
                held.countDown();
            }
            socket = connect();
            for (int number = 0; !ended; number++) {
                if (mine) {
                    give(number);
                } else {
                    take(number);
                }
                mine = !mine;
            }
        } catch (OtherSide e) {
            // It has been told to end a moment before this one; if it has failed, it says so itself.
        } catch (Exception e) {
            if (!ended) {
                failure.compareAndSet(null, e);
            }
        } finally {
            held.countDown();
        }
    }

    private void give(int number) throws IOException, InterruptedException {
        expect('w');
        long pauseUs = ThreadLocalRandom.current().nextLong(MIN_PAUSE_US, MAX_PAUSE_US);
        Thread.sleep(pauseUs / 1000, (int) (pauseUs % 1000) * 1000);
        long at = unixNs();
        lock.unlock();
        record(number, true, at);
        expect('t');
    }

    private void take(int number) throws IOException, InterruptedException {
        say('w');
        lock.lockInterruptibly();
        record(number, false, unixNs());
        say('t');
    }

    private void record(int number, boolean gave, long at) {
        if (counting) {
            passes.add(new Pass(number, gave, at));
        }
    }

    private Socket connect() throws IOException {
        Socket s;
        if (first) {
            s = listener.accept();
        } else {
            String[] peer = spec.get("Peer").asText().split(":");
            s = new Socket(peer[0], Integer.parseInt(peer[1]));
        }
        s.setTcpNoDelay(true);
        return s;
    }

    private void expect(char what) throws IOException {
        int b;
        try {
            b = socket.getInputStream().read();
        } catch (IOException e) {
            throw new OtherSide(e);
        }
        if (b < 0) {
            throw new OtherSide(null);
        }
        if (b != what) {
            throw new IOException("the other process said " + b);
        }
    }

    private void say(char what) throws IOException {
        try {
            socket.getOutputStream().write(what);
        } catch (IOException e) {
            throw new OtherSide(e);
        }
    }

    private static long unixNs() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000_000L + now.getNano();
    }

    /** The connection to the other process has ended. */
    private static final class OtherSide extends IOException {
        private static final long serialVersionUID = 1;

        OtherSide(IOException cause) {
            super(cause);
        }
    }
}
